// Runs before the first paint: a chosen theme wins over the system's.
"use strict";
(() => {
  const root = document.documentElement;
  const chosen = localStorage.getItem("spectuner-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (systemIsDark.matches ? "dark" : "light")) === "dark";
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem("spectuner-theme", root.dataset.theme);
      name();
      document.dispatchEvent(new Event("themechange"));
    });
    systemIsDark.addEventListener("change", () => {
      name();
      document.dispatchEvent(new Event("themechange"));
    });
  });
})();

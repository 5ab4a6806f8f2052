// Every ten seconds the part marked data-refresh is read again, unless it is in use or hidden.
"use strict";
(() => {
  const PAUSE_MS = 10_000;
  const part = () => document.querySelector("[data-refresh]");
  const isInUse = (node) => document.hidden || node.contains(document.activeElement) || !getSelection().isCollapsed;

  async function refresh() {
    const old = part();
    if (!old || isInUse(old)) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 401) location.reload();
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(old.id);
    if (!fresh || isInUse(old)) return;
    const open = [...old.querySelectorAll("details")].map((node) => node.open);
    fresh.querySelectorAll("details").forEach((node, index) => { node.open = open[index] ?? false; });
    old.replaceWith(fresh);
  }

  if (part()) setInterval(() => refresh().catch(() => undefined), PAUSE_MS);
})();

// Draws every figure.chart from the JSON beside it. The same figures stand in the page's tables.
"use strict";
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const HEIGHT = 230;

  function axes(time, labels) {
    const line = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const x = { ...line, label: labels[0], labelSize: 18, labelFont: "11px system-ui", size: 26 };
    if (!time) x.values = (plot, splits) => splits.map((at) => (Number.isInteger(at) ? String(at) : ""));
    const y = { ...line, size: 46, label: labels[1], labelSize: 16, labelFont: "11px system-ui" };
    return [x, y];
  }

  function positions(data) {
    const series = [{ label: "position" }];
    const columns = [data.x];
    const bands = [];
    data.series.forEach((line, index) => {
      const colour = css(`--line-${(index % 4) + 1}`);
      const at = columns.length;
      columns.push(line.high, line.low, line.mean);
      const edge = { stroke: "transparent", width: 0, points: { show: false } };
      series.push({ ...edge, label: `${line.label}, upper` }, { ...edge, label: `${line.label}, lower` });
      series.push({ label: line.label, stroke: colour, width: 2, points: { show: true, size: 6, fill: colour, stroke: colour }, dash: line.label.includes("counterfactual") ? [5, 4] : undefined });
      bands.push({ series: [at, at + 1], fill: `${colour}26` });
    });
    const [x, y] = axes(false, ["draft position", ""]);
    y.values = (plot, splits) => splits.map((share) => `${Math.round(share * 100)} %`);
    const last = data.x.length;
    return { options: { scales: { x: { time: false, range: [0.6, last + 0.4] }, y: { range: [0, 1] } }, axes: [{ ...x, incrs: [1] }, y], series, bands }, columns };
  }

  function history(data) {
    const [tokens, rate] = data.series;
    const [x, y] = axes(true, ["", ""]);
    const isShort = data.x.at(-1) - data.x[0] < 1800;
    const clock = (at) => new Date(at * 1000).toISOString().slice(11, isShort ? 19 : 16);
    x.values = (plot, splits) => splits.map(clock);
    x.label = "UTC";
    x.space = 72;
    y.values = (plot, splits) => splits.map((value) => value.toFixed(1));
    const right = { ...axes(true, ["", ""])[1], side: 1, scale: "rate", grid: { show: false }, values: (plot, splits) => splits.map((share) => `${Math.round(share * 100)} %`) };
    const series = [
      { label: "window ends", value: (plot, at) => (at === null ? "" : clock(at)) },
      { label: tokens.label, stroke: css("--line-1"), width: 2, points: { size: 5 }, spanGaps: false },
      { label: rate.label, stroke: css("--line-2"), width: 1.5, dash: [5, 4], scale: "rate", points: { size: 4 }, spanGaps: false },
    ];
    const range = (plot, low, high) => [Math.min(1, low ?? 1), Math.max(2, high ?? 2) * 1.05];
    return { options: { scales: { x: { time: true }, y: { range }, rate: { range: [0, 1] } }, axes: [x, y, right], series }, columns: [data.x, tokens.mean, rate.mean] };
  }

  const kinds = { positions, history };

  function legend(figure, series) {
    let list = figure.querySelector("ul.legend");
    if (!list) {
      list = document.createElement("ul");
      list.className = "legend";
      figure.append(list);
    }
    list.replaceChildren(...series.map((line, index) => {
      const item = document.createElement("li");
      item.className = `l-${(index % 4) + 1}`;
      item.textContent = line.label;
      return item;
    }));
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const source = figure.querySelector("script[type='application/json']");
    if (!place || !source) return;
    place.replaceChildren();
    const data = JSON.parse(source.textContent);
    const { options, columns } = kinds[data.kind](data);
    const plot = new uPlot({ width: place.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { y: false }, ...options }, columns, place);
    legend(figure, data.series);
    figure.plot = plot;
  }

  const figures = () => document.querySelectorAll("figure.chart");
  const drawAll = () => figures().forEach(draw);
  drawAll();
  addEventListener("resize", () => figures().forEach((figure) => {
    figure.plot?.setSize({ width: figure.querySelector(".plot").clientWidth, height: HEIGHT });
  }));
  document.addEventListener("themechange", drawAll);
  // A chart in a closed fold has no width until it is opened.
  document.addEventListener("toggle", (event) => {
    if (event.target.open) event.target.querySelectorAll("figure.chart").forEach(draw);
  }, true);
})();

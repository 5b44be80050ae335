// The leaderboard: sorts and filters its tables, and draws accuracy against budget of the ticked models.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = ["#3b6fd4", "#d1495b", "#2a9d6f", "#b8860b", "#8e5bd0", "#0f8fa8", "#d0679d", "#6b7280"];
  const TICKED = ["GNNGuard", "Beltrami", "GRAND", "GCN"];

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes, text = "") => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };

  const isModel = (row) => !row.classList.contains("divider");
  const nameOf = (row) => row.dataset.name;
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? cell.dataset.v : cell.textContent.trim().toLowerCase();
  };

  function compare(one, other, column, sign) {
    const [a, b] = [valueOf(one, column), valueOf(other, column)];
    if (a === "" || b === "") return (a === "") - (b === ""); // what is missing comes last
    const difference = a - b;
    return sign * (Number.isNaN(difference) ? a.localeCompare(b) : difference);
  }

  function sortBy(table, heading) {
    const column = heading.cellIndex;
    const descending = heading.getAttribute("aria-sort") !== "descending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter(isModel);
      rows.sort((one, other) => compare(one, other, column, descending ? -1 : 1));
      body.append(...rows);
    }
  }

  function filter(rows, text, kind) {
    const wanted = text.trim().toLowerCase();
    for (const row of rows) {
      const fits = nameOf(row).toLowerCase().includes(wanted) && (!kind || row.dataset.kind === kind);
      row.hidden = !(fits || row.classList.contains("control"));
    }
  }

  function curveOf(row, budgets) {
    return budgets.flatMap(({ column, edges, name }) => {
      const value = row.cells[column].dataset.v;
      return value === "" ? [] : [{ edges, name, value: Number(value) }];
    });
  }

  function plot(figure, rows, budgets) {
    const ticked = rows.filter((row) => row.querySelector("input").checked);
    const width = Math.max(300, figure.clientWidth), height = Math.min(320, 0.62 * width);
    const [left, right, top, bottom] = [38, 14, 12, 44];
    const ends = [Math.log(budgets[0].edges), Math.log(budgets[budgets.length - 1].edges)];
    const x = (edges) => left + (width - left - right) * (Math.log(edges) - ends[0]) / (ends[1] - ends[0]);
    const y = (value) => top + (height - top - bottom) * (1 - value / 100);
    const label = "Accuracy against budget of " + ticked.map(nameOf).join(", ");
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
    for (const value of [0, 25, 50, 75, 100]) {
      svg.append(draw("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid" }));
      svg.append(draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value));
    }
    budgets.forEach(({ edges, name }, place) => {
      // 200 and 250 edges are close: their names alternate between two heights.
      const low = place % 2 ? 30 : 16;
      const anchor = place === 0 ? "start" : place === budgets.length - 1 ? "end" : "middle";
      svg.append(draw("text", { x: x(edges), y: height - bottom + low, "text-anchor": anchor }, name));
    });
    const legend = make("p", { class: "board-legend" });
    ticked.forEach((row, place) => {
      const control = row.classList.contains("control");
      const colour = control ? "currentColor" : COLOURS[place % COLOURS.length];
      const points = curveOf(row, budgets);
      const group = draw("g", { stroke: colour, fill: colour, "data-model": nameOf(row) });
      const path = points.map(({ edges, value }) => `${x(edges)},${y(value)}`).join(" ");
      group.append(draw("polyline", { points: path, class: control ? "curve control" : "curve" }));
      for (const { edges, name, value } of control ? [] : points) {
        const mark = draw("circle", { cx: x(edges), cy: y(value), r: 3.5 });
        mark.append(draw("title", {}, `${nameOf(row)}, ${name}: ${value.toFixed(1)} %`));
        group.append(mark);
      }
      svg.append(group);
      const swatch = make("span", { class: control ? "swatch control" : "swatch", style: `color:${colour}` });
      legend.append(make("span", {}, swatch, control ? "MLP, which sees no edge" : nameOf(row)));
    });
    const title = make("figcaption", {}, "Accuracy in % against budget (injected nodes × edges of each). Tick models in the table.");
    figure.replaceChildren(title, svg, legend);
  }

  function enhance(board) {
    const table = board.querySelector(".board-table"), head = table.tHead.rows[0];
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]).filter(isModel);
    for (const row of rows) {
      row.dataset.name = row.cells[1].querySelector(".name").textContent;
    }
    for (const heading of head.cells) {
      const button = make("button", { type: "button", title: "Sort by this column" });
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sortBy(table, heading));
      heading.append(button);
    }

    const search = make("input", { type: "search", placeholder: "Find a model", "aria-label": "Find a model" });
    const kinds = [...new Set(rows.map((row) => row.dataset.kind))].filter((kind) => kind !== "control");
    const kind = make("select", { "aria-label": "Kind of model" }, make("option", { value: "" }, "All kinds"));
    for (const name of kinds) kind.append(make("option", { value: name }, `${name}s`));
    const all = make("input", { type: "checkbox" });
    const controls = make("div", { class: "board-controls" }, search, kind);
    controls.append(make("label", { class: "board-all" }, all, " All columns"));
    const apply = () => filter(rows, search.value, kind.value);
    search.addEventListener("input", apply);
    kind.addEventListener("change", apply);
    all.addEventListener("change", () => board.classList.toggle("all-columns", all.checked));

    const budgets = [...head.cells]
      .filter((heading) => heading.dataset.edges)
      .map((heading) => ({ column: heading.cellIndex + 1, edges: Number(heading.dataset.edges), name: heading.textContent }));
    const figure = make("figure", { class: "board-chart" });
    head.prepend(make("th", { class: "tick" }, "Plot"));
    for (const row of rows) {
      const box = make("input", { type: "checkbox", "aria-label": `Plot ${nameOf(row)}` });
      box.checked = row.classList.contains("control") || TICKED.includes(nameOf(row));
      row.prepend(make("td", { class: "tick" }, box));
    }
    for (const divider of table.querySelectorAll(".divider th")) divider.colSpan += 1;
    board.prepend(controls);
    if (budgets.length > 1) {
      board.prepend(figure);
      const redraw = () => plot(figure, rows, budgets);
      table.addEventListener("change", redraw);
      window.addEventListener("resize", redraw);
      redraw();
    } else {
      board.classList.add("no-chart");
    }
  }

  const start = () => document.querySelectorAll(".board").forEach(enhance);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();

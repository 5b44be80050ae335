"use strict";
// Without this script every cell keeps its native tooltip and every cell is a tab stop.
(() => {
  const tip = document.getElementById("tip");
  let shown = null;
  let timer = 0;

  const fill = (details) => {
    const [heading, ...lines] = details.split("\n");
    const title = document.createElement("b");
    title.textContent = heading;
    const list = document.createElement("div");
    for (const line of lines) {
      const at = line.indexOf(": ");
      const parts = at > 0 && at < 24 ? [line.slice(0, at), line.slice(at + 2)] : [line];
      for (const part of parts) {
        const span = document.createElement("span");
        span.textContent = part;
        if (parts.length === 1) span.className = "whole";
        list.append(span);
      }
    }
    tip.replaceChildren(title, list);
  };

  const place = (target) => {
    const box = target.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const below = box.bottom + 8;
    const above = box.top - own.height - 8;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below + own.height < innerHeight || above < 0 ? below : above}px`;
  };

  const hide = () => {
    clearTimeout(timer);
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };

  const show = (target) => {
    clearTimeout(timer);
    if (shown === target) return;
    hide();
    shown = target;
    fill(target.dataset.details);
    tip.hidden = false;
    tip.scrollTop = 0;
    place(target);
    if (target.matches("td")) target.setAttribute("aria-describedby", "tip");
  };

  // The pointer may travel from a cell to its tooltip, to read or copy from it.
  const hideSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const focused = document.activeElement;
      if (focused && focused.matches("td[data-details]:focus-visible")) show(focused);
      else hide();
    }, 180);
  };

  document.addEventListener("pointerover", (event) => {
    if (tip.contains(event.target)) return clearTimeout(timer);
    const target = event.target.closest("[data-details]");
    if (target) show(target);
    else if (shown) hideSoon();
  });
  document.addEventListener("pointerleave", hideSoon);
  document.addEventListener("focusin", (event) => {
    const target = event.target.closest("[data-details]");
    if (target) show(target);
    else hide();
  });
  document.addEventListener("focusout", (event) => {
    if (!event.relatedTarget) hideSoon();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  const follows = () => {
    if (!shown) return;
    const box = shown.getBoundingClientRect();
    tip.hidden = box.bottom < 0 || box.top > innerHeight;
    if (!tip.hidden) place(shown);
  };
  addEventListener("scroll", follows, { capture: true, passive: true });
  addEventListener("resize", hide);

  const moves = {
    ArrowLeft: (r, c) => [r, c - 1],
    ArrowRight: (r, c) => [r, c + 1],
    ArrowUp: (r, c) => [r - 1, c],
    ArrowDown: (r, c) => [r + 1, c],
    Home: (r, c, rows, event) => [event.ctrlKey ? 0 : r, 0],
    End: (r, c, rows, event) => [event.ctrlKey ? rows.length - 1 : r, rows[r].length - 1],
    PageUp: (r, c) => [Math.max(0, r - 5), c],
    PageDown: (r, c, rows) => [Math.min(rows.length - 1, r + 5), c],
  };

  for (const table of document.querySelectorAll(".paper-table table")) {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]).map((row) => [...row.querySelectorAll("td")]);
    // One tab stop per table; arrow keys do the rest.
    table.setAttribute("role", "grid");
    table.setAttribute("aria-readonly", "true");
    rows.flat().forEach((cell, i) => {
      const about = [`${cell.dataset.row}, ${cell.dataset.column}`, cell.title];
      const away = Number(cell.dataset.deviations);
      if (cell.dataset.deviations !== undefined && Number.isFinite(away)) {
        about.push(`in pooled sd: ${away > 0 ? "+" : ""}${away.toFixed(1)}`.replace("-", "\u2212"));
      }
      cell.dataset.details = about.join("\n");
      cell.removeAttribute("title");
      cell.tabIndex = i === 0 ? 0 : -1;
    });
    table.addEventListener("focusin", (event) => {
      const cell = event.target.closest("td");
      if (!cell) return;
      for (const other of table.querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1;
      cell.tabIndex = 0;
    });
    table.addEventListener("keydown", (event) => {
      const move = moves[event.key];
      const r = rows.findIndex((row) => row.includes(event.target));
      if (!move || r < 0 || event.altKey || event.metaKey || (event.ctrlKey && !/^(Home|End)$/.test(event.key))) return;
      const [row, column] = move(r, rows[r].indexOf(event.target), rows, event);
      event.preventDefault();
      rows[row]?.[column]?.focus();
    });
  }

  // Names of rows stay in sight where they leave room for numbers.
  const pin = () => {
    for (const scroll of document.querySelectorAll(".paper-table .scroll")) {
      const table = scroll.querySelector("table");
      const heads = [...table.querySelectorAll("thead th.name")];
      const count = heads.length;
      const widths = heads.map((head) => head.offsetWidth);
      const fits = widths.reduce((a, b) => a + b, 0) < 0.6 * scroll.clientWidth;
      const overflows = table.offsetWidth > scroll.clientWidth;
      // A wide group of names would cover the numbers, its last column alone would not.
      const pinned = !overflows ? [] : fits ? heads.map((_, i) => i) : [count - 1];
      const offsets = pinned.map((_, k) => (fits ? widths.slice(0, k).reduce((a, b) => a + b, 0) : 0));
      for (const row of table.rows) {
        const names = [...row.cells].filter((cell) => cell.tagName === "TH").slice(0, count);
        names.forEach((cell, i) => {
          const column = i + count - Math.min(count, names.length);
          const k = pinned.indexOf(column);
          cell.classList.toggle("pinned", k >= 0);
          cell.style.left = k >= 0 ? `${offsets[k]}px` : "";
        });
      }
    }
  };
  pin();
  addEventListener("resize", pin);

  // A link to a cell moves the keyboard there too.
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.matches("td")) target.focus();
  };
  addEventListener("hashchange", follow);
  follow();

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();

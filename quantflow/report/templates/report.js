"use strict";
(() => {
  // Written into the page by the script alone, so that without it nothing is there that does nothing.
  const root = document.documentElement;
  root.classList.add("scripted");
  const words = document.querySelector("main").dataset;

  const value = (row, column) => {
    const cell = row.cells[column];
    const given = cell.dataset.value ?? cell.textContent.trim();
    const plain = given.replace(/[\s,]/g, "").replace("−", "-").replace(/×10/, "e");
    const power = plain.replace(/[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (c) => "-0123456789"["⁻⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c)]);
    const number = Number.parseFloat(power);
    return Number.isNaN(number) ? given : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  // A table is filtered by row, or by group of rows where each criterion is one.
  const few = 8;
  for (const table of document.querySelectorAll("table.filtered")) {
    const items = table.tBodies.length > 1 ? [...table.tBodies] : [...(table.tBodies[0]?.rows ?? [])];
    if (items.length < few) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.className = "filter";
    field.placeholder = words.filter;
    field.setAttribute("aria-label", words.filter);
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      for (const item of items) item.hidden = !item.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(field);
  }

  // Tooltips: for the pointer, and with the arrow keys within a drawing; spoken as they appear.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let shown = null;
  const hide = () => {
    shown?.classList.remove("pointed");
    shown = null;
    tip.textContent = "";
  };
  const show = (mark) => {
    if (mark === shown) return;
    hide();
    shown = mark;
    mark.classList.add("pointed");
    tip.textContent = mark.dataset.tip;
    const box = mark.getBoundingClientRect();
    const left = Math.min(Math.max(box.left + box.width / 2 - tip.offsetWidth / 2, 8), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 0 ? above : box.bottom + 8) + scrollY}px`;
  };
  for (const title of document.querySelectorAll("svg title")) {
    title.parentElement.dataset.tip = title.textContent;
    title.remove(); // the browser's own tooltip would cover this one
  }
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    if (mark) show(mark);
    else hide();
  });
  for (const drawing of document.querySelectorAll("svg.plot")) {
    const marks = [...drawing.querySelectorAll("[data-tip]")];
    if (!marks.length) continue;
    drawing.setAttribute("tabindex", "0");
    drawing.addEventListener("blur", hide);
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide();
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return undefined;
      event.preventDefault();
      const at = marks.indexOf(shown);
      return show(marks[at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length]);
    });
  }

  // Paper shows what a click would.
  addEventListener("beforeprint", () => {
    for (const view of document.querySelectorAll("details")) view.open = true;
  });
})();

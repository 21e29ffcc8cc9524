// Follows the run: what the server tells goes into the strip as text; a new look comes in a frame of its own, which takes
// the place of the old one when it stands where the reader was. Nothing is kept or sent.
(() => {
  "use strict";
  const find = (selector) => document.querySelector(selector);
  const strip = find("header");
  const hold = find("button.hold");
  const list = find(".events ol");
  let shown = document.body.dataset.look;
  let latest = shown;
  let told = null; // what the server said last, and when it came
  let coming = null;
  let events = list.children.length;

  // ------------------------------------------------------------------------------------------ one look to the next

  const words = (element) => (element ? element.textContent.trim() : "");
  const inside = (frame) => (frame && frame.contentDocument && frame.contentDocument.body ? frame.contentDocument : null);

  // A fold by its own words and those of the heading above it; the same words twice are counted.
  function folds(page) {
    const seen = new Map();
    const named = new Map();
    for (const one of page.querySelectorAll("details")) {
      const card = one.closest("article, section");
      const name = `${words(card && card.querySelector("h3, h2"))}|${words(one.querySelector("summary"))}`;
      const times = seen.get(name) || 0;
      seen.set(name, times + 1);
      named.set(`${name}|${times}`, one);
    }
    return named;
  }

  const headings = (page) => [...page.querySelectorAll("h1, h2, h3")];

  function carry(from, to) {
    const [old, next] = [inside(from), inside(to)];
    if (!old || !next) return;
    const before = folds(old);
    for (const [name, one] of folds(next)) if (before.has(name)) one.open = before.get(name).open;
    const theme = old.documentElement.dataset.theme;
    const button = next.querySelector("button.theme");
    for (let i = 0; theme && button && i < 2 && next.documentElement.dataset.theme !== theme; i += 1) button.click();
    for (const figure of old.querySelectorAll("figure.open")) reopen(figure, next.getElementById(figure.id));
    const above = headings(old).filter((one) => one.getBoundingClientRect().top <= 1).pop();
    const same = above && headings(next).find((one) => words(one) === words(above));
    const moved = same ? same.getBoundingClientRect().top - above.getBoundingClientRect().top : old.defaultView.scrollY;
    next.defaultView.scrollTo({ top: same ? next.defaultView.scrollY + moved : moved, behavior: "instant" });
  }

  // A plot that was open is opened again, and dragged to the steps that were in view.
  function reopen(old, next) {
    const opener = next && next.querySelector(".zoom");
    if (!opener) return;
    const [from, to] = [old.dataset.from, old.dataset.to].map(Number);
    const whole = old.dataset.whole === `${old.dataset.from} ${old.dataset.to}`;
    opener.click();
    setTimeout(() => { // uPlot draws in a microtask; only then is it known what is in view
      const over = next.querySelector(".u-over");
      const [first, last] = [next.dataset.from, next.dataset.to].map(Number);
      next.dataset.whole = `${next.dataset.from} ${next.dataset.to}`;
      if (whole || !over || !(to > from) || !(last > first)) return;
      const box = over.getBoundingClientRect();
      const at = (step) => box.left + (box.width * (Math.min(Math.max(step, first), last) - first)) / (last - first);
      const move = (kind, step) => over.dispatchEvent(new next.ownerDocument.defaultView.MouseEvent(kind,
        { bubbles: true, clientX: at(step), clientY: box.top + box.height / 2, movementX: 1, button: 0, buttons: 1 }));
      move("mousedown", from);
      move("mousemove", to);
      move("mouseup", to);
    }, 0);
  }

  const reading = (page) => page && page.getSelection() && !page.getSelection().isCollapsed;

  function renew() {
    const old = find("iframe.shown");
    if (latest === shown || coming || hold.getAttribute("aria-pressed") === "true") return;
    if (reading(inside(old))) return; // words that are being copied are not taken away
    const look = latest;
    const next = document.createElement("iframe");
    coming = next;
    next.className = "coming";
    next.title = old.title;
    next.src = `report.html?look=${encodeURIComponent(look)}`;
    next.addEventListener("load", () => {
      const focused = document.activeElement;
      try { carry(old, next); } catch { /* the new look is shown from its top */ }
      next.className = "shown";
      old.remove();
      (focused === old ? next : focused).focus({ preventScroll: true });
      dress(next);
      [coming, shown] = [null, look];
      document.body.dataset.look = look;
      renew();
    }, { once: true });
    old.after(next);
  }

  // Links out of the report open beside it, and the strip has its colours.
  function dress(frame) {
    const page = inside(frame);
    if (!page) return;
    for (const link of page.querySelectorAll('a[href^="http"]')) link.target = "_blank";
    // What a plot shows when it is opened: later, what differs from it was chosen by the reader.
    page.addEventListener("click", (event) => {
      const figure = event.target.closest && event.target.closest(".zoom") && event.target.closest("figure");
      if (figure) setTimeout(() => { figure.dataset.whole ??= `${figure.dataset.from} ${figure.dataset.to}`; }, 0);
    });
    const root = page.documentElement;
    const follow = () => { document.documentElement.dataset.theme = root.dataset.theme || ""; };
    follow();
    new MutationObserver(follow).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  }

  // ---------------------------------------------------------------------------------------------------- the strip

  function ago(seconds) {
    const s = Math.max(0, Math.round(seconds));
    if (s < 90) return `${s} s`;
    if (s < 5400) return `${Math.round(s / 60)} min`;
    return `${(s / 3600).toFixed(1)} h`;
  }

  function tick() {
    if (told && told.last_row !== null) {
      const passed = (performance.now() - told.came) / 1000;
      find(".age").textContent = `last row ${ago(told.now - told.last_row + passed)} ago`;
    }
    renew();
  }

  function take(message) {
    told = { ...message, came: performance.now() };
    strip.className = message.tone;
    find("h1").textContent = message.run;
    for (const name of ["state", "verdict", "step", "problem"]) find(`.${name}`).textContent = message[name];
    list.replaceChildren(...message.events.map((one) => {
      const item = document.createElement("li");
      item.className = one.severity;
      item.textContent = one.says;
      return item;
    }));
    find(".events").hidden = !message.events.length;
    find(".events summary").textContent = `${message.events.length} event${message.events.length === 1 ? "" : "s"}`;
    if (message.count > events) find(".told").textContent = message.events[0].says;
    events = message.count;
    latest = message.look;
    tick();
  }

  hold.hidden = false;
  hold.addEventListener("click", () => {
    hold.setAttribute("aria-pressed", String(hold.getAttribute("aria-pressed") !== "true"));
    renew();
  });
  const first = find("iframe.shown");
  first.addEventListener("load", () => dress(first), { once: true });
  if (inside(first) && inside(first).readyState === "complete") dress(first);

  const source = new EventSource("events");
  source.addEventListener("look", (event) => take(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    find(".problem").textContent = "no connection to rlclinic serve; trying again";
    if (source.readyState === EventSource.CLOSED) find(".problem").textContent = "rlclinic serve refuses: reload the page";
  });
  source.addEventListener("open", () => { find(".problem").textContent = told ? told.problem : ""; });
  setInterval(tick, 1000);
})();

// A picture that a reader opens becomes a plot that can be zoomed: the same points, marks and colours, drawn by uPlot.
// Nothing here reads anything but the island of numbers and the page's own colours; labels are set as text, never as markup.
(() => {
  "use strict";

  const source = document.getElementById("plots");
  if (!source || typeof uPlot === "undefined") return;
  let read = null; // the island, taken apart when the first plot is opened: a page that nobody zooms opens at once
  const island = () => (read ??= JSON.parse(source.textContent));
  const figures = [...document.querySelectorAll("figure[data-plot]")];
  const HEIGHT = 300;
  const opened = new Map(); // figure -> the open plot

  // ------------------------------------------------------------------------------------------------ numbers

  function bytes(text) {
    const raw = atob(text);
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) out[i] = raw.charCodeAt(i);
    return out.buffer;
  }

  function steps(packed) {
    if (packed.f8) return Array.from(new Float64Array(bytes(packed.f8)));
    const out = new Array(packed.n);
    const moves = packed.u2 ? new Uint16Array(bytes(packed.u2)) : packed.u4 ? new Uint32Array(bytes(packed.u4)) : null;
    for (let i = 0, at = packed.first; i < packed.n; i += 1) {
      out[i] = at;
      at += moves ? moves[i] : packed.every;
    }
    return out;
  }

  function values(packed) {
    const numbers = packed.f8 ? new Float64Array(bytes(packed.f8)) : new Float32Array(bytes(packed.f4));
    return Array.from(numbers, (v) => (Number.isFinite(v) ? v : null)); // null is what breaks a line
  }

  const unpacked = new Map();
  function points(place) {
    if (!unpacked.has(place)) {
      const packed = island().columns[place];
      unpacked.set(place, { x: steps(packed.steps), y: values(packed.values), of: packed.of });
    }
    return unpacked.get(place);
  }

  // The line through (xs, ys) at each of `at`; null outside of it and where it is broken.
  function along(line, at) {
    const xs = steps(line.steps);
    const ys = values(line.values);
    let i = 0;
    return at.map((x) => {
      while (i < xs.length - 2 && xs[i + 1] < x) i += 1;
      if (x < xs[0] || x > xs[xs.length - 1]) return null;
      if (x === xs[i]) return ys[i];
      const [a, b] = [ys[i], ys[i + 1]];
      if (a === null || b === null) return x === xs[i + 1] ? b : null;
      return a + ((b - a) * (x - xs[i])) / (xs[i + 1] - xs[i] || 1);
    });
  }

  // One axis for all lines of a plot: a step that a line lacks is undefined, which does not break it.
  function table(plot) {
    const drawn = plot.lines.map((line) => ({ ...line, ...points(line.points) }));
    if (drawn.length === 1) {
      const { x, y, course } = drawn[0];
      return course ? [x, y, along(course, x)] : [x, y];
    }
    const every = [...new Set(drawn.flatMap((line) => line.x))].sort((a, b) => a - b);
    const place = new Map(every.map((x, i) => [x, i]));
    const data = [every];
    for (const { x, y, course } of drawn) {
      for (const ys of course ? [y, along(course, x)] : [y]) {
        const spread = new Array(every.length);
        x.forEach((at, i) => { spread[place.get(at)] = ys[i]; });
        data.push(spread);
      }
    }
    return data;
  }

  function shown(value) {
    if (value === null || value === undefined) return "no value";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(3);
    return String(Number(value.toPrecision(5)));
  }

  // A value at the axis, with as many decimals as its neighbours need.
  function tick(value, gap) {
    const size = Math.max(Math.abs(value), gap);
    if (size >= 1e6 || gap < 1e-4) return value === 0 ? "0" : String(Number(value.toPrecision(4)));
    const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(gap) - 1e-9)));
    return value.toFixed(Number.isInteger(gap * 10 ** decimals) || decimals === 6 ? decimals : decimals + 1);
  }

  const stepWords = (step) => String(Number.isSafeInteger(step) ? step : Number(step.toPrecision(12)));

  // ------------------------------------------------------------------------------------------------- colours

  const NAMES = ["ink", "quiet", "line", "ground", "accent", "healthy", "info", "warning", "critical", "undecided", "mist",
    "run1", "run2", "run3", "run4", "run5", "run6"];
  let colours = {};
  function readColours() {
    const style = getComputedStyle(figures[0] || document.documentElement);
    colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim() || "#808080"]));
  }
  const toneOf = (plot) => colours[plot.tone] || colours.accent;
  const DASHES = [[], [7, 4], [2, 4], [10, 3, 2, 3], [4, 3], [12, 5]]; // as in plot.css
  const colourOf = (plot, i) => (plot.lines.length > 1 ? colours[`run${Math.min(i + 1, 6)}`] : colours.accent);

  function seeThrough(colour, share) {
    return `color-mix(in srgb, ${colour} ${share * 100}%, transparent)`;
  }

  // --------------------------------------------------------------------------------------------------- marks

  function brush(u, paint) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    paint(ctx, bbox, (step) => u.valToPos(step, "x", true), (value) => u.valToPos(value, "y", true));
    ctx.restore();
  }

  function upright(ctx, bbox, x, colour, width, dash) {
    ctx.strokeStyle = colour;
    ctx.lineWidth = width * devicePixelRatio;
    ctx.setLineDash(dash.map((v) => v * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  function ribbon(ctx, across, down, { x, low, high }, colour) {
    ctx.fillStyle = colour;
    ctx.beginPath();
    x.forEach((step, i) => ctx.lineTo(across(step), down(low[i])));
    for (let i = x.length - 1; i >= 0; i -= 1) ctx.lineTo(across(x[i]), down(high[i]));
    ctx.fill();
  }

  function behind(plot) {
    return (u) => brush(u, (ctx, bbox, across, down) => {
      const tone = toneOf(plot);
      const band = (low, high, share) => {
        const left = across(low);
        ctx.fillStyle = seeThrough(tone, share);
        ctx.fillRect(left, bbox.top, Math.max(across(high) - left, devicePixelRatio), bbox.height);
      };
      if (plot.mark) {
        if (plot.kind === "curve") band(plot.mark.step, plot.end, 0.055);
        if (plot.mark.high > plot.mark.low) band(plot.mark.low, plot.mark.high, 0.16);
      }
      if (plot.sound) ribbon(ctx, across, down, plot.sound, seeThrough(colours.healthy, 0.13));
      if (plot.fan) {
        ribbon(ctx, across, down, plot.fan, colours.mist);
        ctx.strokeStyle = colours.accent;
        ctx.lineWidth = 1.5 * devicePixelRatio;
        ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.beginPath();
        plot.fan.x.forEach((step, i) => ctx.lineTo(across(step), down(plot.fan.mid[i])));
        ctx.stroke();
        ctx.setLineDash([]);
      }
      for (const step of plot.seams || []) upright(ctx, bbox, across(step), colours.quiet, 1, [1, 4]);
    });
  }

  function before(plot) {
    return (u) => brush(u, (ctx, bbox, across, down) => {
      const dpr = devicePixelRatio;
      const floor = bbox.top + bbox.height;
      if (plot.errors) {
        ctx.strokeStyle = seeThrough(colours.accent, 0.6);
        ctx.lineWidth = 1.25 * dpr;
        plot.errors.x.forEach((step, i) => {
          ctx.beginPath();
          ctx.moveTo(across(step), down(plot.errors.low[i]));
          ctx.lineTo(across(step), down(plot.errors.high[i]));
          ctx.stroke();
        });
      }
      ctx.fillStyle = colours.critical;
      for (const [first, last] of plot.nan || []) {
        ctx.fillRect(across(first) - 2 * dpr, floor - 5 * dpr, across(last) - across(first) + 4 * dpr, 4 * dpr);
      }
      if (plot.met) {
        const [first, at, last] = plot.met.map(across);
        ctx.fillStyle = toneOf(plot);
        ctx.fillRect(first, floor - 3 * dpr, last - first, 3 * dpr);
        ctx.beginPath();
        ctx.arc(at, floor - 3 * dpr, 4.5 * dpr, 0, 2 * Math.PI);
        ctx.fill();
      }
      ctx.fillStyle = colours.quiet;
      for (const step of plot.saved || []) ctx.fillRect(across(step), floor - 6 * dpr, dpr, 6 * dpr);
      if (plot.back !== null && plot.back !== undefined) {
        const x = across(plot.back);
        ctx.fillStyle = colours.healthy;
        ctx.beginPath();
        ctx.moveTo(x, floor - 9 * dpr);
        ctx.lineTo(x - 5 * dpr, floor);
        ctx.lineTo(x + 5 * dpr, floor);
        ctx.fill();
      }
      if (plot.mark) {
        const x = across(plot.mark.step);
        upright(ctx, bbox, x, toneOf(plot), 1.5, []);
        if (x < bbox.left || x > bbox.left + bbox.width) return;
        const left = x > bbox.left + bbox.width / 2;
        ctx.font = `600 ${12 * dpr}px system-ui, sans-serif`;
        ctx.textAlign = left ? "right" : "left";
        ctx.fillStyle = toneOf(plot);
        ctx.fillText(plot.mark.says, x + (left ? -6 : 6) * dpr, bbox.top + 14 * dpr);
      }
    });
  }

  // -------------------------------------------------------------------------------------------- one open plot

  function element(kind, name, words) {
    const made = document.createElement(kind);
    made.className = name;
    if (words) made.textContent = words;
    return made;
  }

  function button(words, pressed) {
    const made = element("button", "", words);
    made.type = "button";
    if (pressed !== undefined) made.setAttribute("aria-pressed", String(pressed));
    return made;
  }

  function axis(side) {
    return {
      stroke: () => colours.quiet,
      grid: { show: side === "y", stroke: () => colours.line, width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      size: side === "y" ? 56 : 28,
      gap: 6,
      values: side === "y"
        ? (u, splits, place, space, gap) => splits.map((v) => (v === null ? "" : tick(v, gap)))
        : (u, splits) => splits.map((v) => (v === null ? "" : stepWords(v))),
    };
  }

  function series(plot) {
    const made = [{}];
    plot.lines.forEach((line, i) => {
      const own = () => colourOf(plot, i);
      const alone = !line.course;
      made.push({
        stroke: alone ? own : () => seeThrough(own(), plot.lines.length > 1 ? 0.25 : 0.4),
        width: alone && !plot.errors ? 2 : 1,
        dash: alone && plot.lines.length > 1 ? DASHES[Math.min(i, 5)] : undefined,
        points: { show: plot.dots ? true : undefined, size: 6, fill: own, stroke: own },
      });
      if (line.course) {
        made.push({ stroke: own, width: 2, points: { show: false }, dash: plot.lines.length > 1 ? DASHES[Math.min(i, 5)] : undefined });
      }
    });
    return made;
  }

  // What is read off at the i-th step; without one, the steps in view and the names of the lines.
  function tell(readout, plot, data, i, range) {
    const axis = plot.axis || "step";
    const words = [element("span", "", i === null
      ? `${axis} ${stepWords(range.min ?? plot.x[0])} to ${stepWords(range.max ?? plot.x[1])}` : `${axis} ${stepWords(data[0][i])}`)];
    let column = 1;
    plot.lines.forEach((line, place) => {
      const own = column;
      column += line.course ? 2 : 1;
      const value = i === null ? undefined : data[own][i];
      if (line.name && (i === null || value !== undefined)) {
        const name = element("span", "name", line.name);
        name.style.color = colourOf(plot, place);
        words.push(name);
      }
      if (value === undefined) return;
      if (line.name) words[words.length - 1].textContent += ` ${shown(value)}`;
      else words.push(element("span", "", shown(value)));
      const course = line.course && !line.name ? data[own + 1][i] : null;
      if (course !== null && course !== undefined) words.push(element("span", "", `course ${shown(course)}`));
    });
    readout.replaceChildren(...words.flatMap((word, n) => (n ? [" \u00b7 ", word] : [word])));
  }

  function drawnOf(plot) {
    const most = plot.lines.map((line) => points(line.points)).find(({ x, of }) => of > x.length + 1);
    return most ? `Lowest and highest of neighbouring points: ${most.x.length} of ${most.of} drawn. ` : "";
  }

  function open(figure, range, focus) {
    if (opened.has(figure)) return;
    const plot = island().plots[figure.id];
    if (!plot) return;
    const data = table(plot);
    if (plot.end === undefined) plot.end = data[0][data[0].length - 1];
    const live = element("div", "live");
    const bar = element("div", "bar");
    const readout = element("p", "readout");
    const whole = button("Full range", false);
    const reset = button("Reset");
    const shut = button("Close");
    bar.append(readout, whole, reset, shut);
    const canvas = element("div", "canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", `${plot.title}: arrow keys read values, plus and minus zoom, 0 resets, Escape closes`);
    live.append(bar, canvas, element("p", "hint",
      `${drawnOf(plot)}Drag to zoom, double click to reset, Escape to close.`));
    const svg = figure.querySelector("svg.chart, svg.spark");
    svg.after(live);
    figure.classList.add("open");

    let full = false;
    const [low, high] = plot.y;
    const u = new uPlot({
      width: Math.max(canvas.clientWidth, 200),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, sync: { key: "rlclinic", scales: ["x", null] }, drag: { x: true, y: false, dist: 4 }, points: { size: 7 } },
      scales: {
        x: { time: false, range: (self, min, max) => (min === max ? [min - 1, max + 1] : [min, max]) },
        y: {
          range: (self, min, max) => {
            if (!full || min === null) return [low, high];
            const air = (max / 2 - min / 2) * 0.1 || Math.abs(max) * 0.1 || 1;
            return [min - air, max + air];
          },
        },
      },
      axes: [axis("x"), axis("y")],
      series: series(plot),
      hooks: {
        setScale: [(self, key) => {
          if (key !== "x" || self.scales.x.min === null) return; // null until it is first drawn
          figure.dataset.from = stepWords(self.scales.x.min);
          figure.dataset.to = stepWords(self.scales.x.max);
          tell(readout, plot, data, null, self.scales.x);
        }],
        drawClear: [behind(plot)],
        draw: [before(plot)],
        setCursor: [(self) => tell(readout, plot, data, self.cursor.idx ?? null, self.scales.x)],
      },
    }, data, canvas);

    const show = (min, max) => u.setScale("x", { min, max });
    const all = () => show(plot.x[0], plot.x[1]);
    opened.set(figure, { u, retell: () => tell(readout, plot, data, u.cursor.idx ?? null, u.scales.x) });
    if (range) show(range[0], range[1]); else all();
    // uPlot resets a double click to the extent of the data, which leaves a forecast out.
    u.over.addEventListener("dblclick", (event) => { event.stopPropagation(); requestAnimationFrame(all); });

    function scale(times) {
      const { min, max } = u.scales.x;
      const middle = u.cursor.idx === null || u.cursor.idx === undefined ? (min + max) / 2 : data[0][u.cursor.idx];
      const half = Math.min(((max - min) * times) / 2, (plot.x[1] - plot.x[0]) / 2);
      if (half > 0) show(Math.max(middle - half, plot.x[0]), Math.min(middle + half, plot.x[1]));
    }

    function move(by) {
      const { min, max } = u.scales.x;
      const inside = data[0].findIndex((x) => x >= min);
      let i = u.cursor.idx ?? inside;
      if (u.cursor.idx !== null && u.cursor.idx !== undefined) i += by;
      i = Math.max(0, Math.min(i, data[0].length - 1));
      const x = data[0][i];
      if (x < min || x > max) show(x - (max - min) / 2, x + (max - min) / 2);
      readout.setAttribute("aria-live", "polite");
      requestAnimationFrame(() => u.setCursor({ left: u.valToPos(x, "x"), top: u.over.clientHeight / 2 }, true, true));
    }

    canvas.addEventListener("pointermove", () => readout.removeAttribute("aria-live"));
    canvas.addEventListener("keydown", (event) => {
      const stride = event.shiftKey ? Math.max(1, Math.round(data[0].length / 40)) : 1;
      const action = { ArrowLeft: () => move(-stride), ArrowRight: () => move(stride), "+": () => scale(0.5),
        "=": () => scale(0.5), "-": () => scale(2), 0: all }[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
    whole.addEventListener("click", () => {
      full = !full;
      whole.setAttribute("aria-pressed", String(full));
      show(u.scales.x.min, u.scales.x.max);
    });
    reset.addEventListener("click", all);
    shut.addEventListener("click", close);
    live.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
    });
    const watch = new ResizeObserver(() => {
      const width = canvas.clientWidth;
      if (width > 0 && Math.abs(width - u.width) > 1) u.setSize({ width, height: HEIGHT });
    });
    watch.observe(canvas);
    if (focus) canvas.focus({ preventScroll: true });

    function close() {
      watch.disconnect();
      u.destroy();
      live.remove();
      figure.classList.remove("open");
      delete figure.dataset.from;
      delete figure.dataset.to;
      opened.delete(figure);
      const back = figure.querySelector(".zoom");
      if (back) back.focus({ preventScroll: true });
    }
  }

  // ------------------------------------------------------------------------------------------- how one is opened

  function watch(figure) {
    const svg = figure.querySelector("svg.chart, svg.spark");
    if (!svg) return;
    figure.classList.add("ready");
    const opener = figure.querySelector(".zoom");
    if (opener) {
      opener.hidden = false;
      opener.addEventListener("click", () => open(figure, null, true));
    }
    svg.addEventListener("dblclick", (event) => { event.preventDefault(); open(figure, null, true); });

    let from = null;
    let mark = null;
    const stepAt = (clientX) => {
      const box = svg.getBoundingClientRect();
      const share = Math.max(0, Math.min((clientX - box.left) / box.width, 1));
      const [first, last] = island().plots[figure.id].x;
      return first + share * (last - first);
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      from = event.clientX;
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (from === null || Math.abs(event.clientX - from) < 5) return;
      event.preventDefault();
      if (!mark) {
        mark = element("div", "plot-drag");
        document.body.append(mark);
      }
      const box = svg.getBoundingClientRect();
      mark.style.left = `${Math.min(from, event.clientX) + scrollX}px`;
      mark.style.width = `${Math.abs(event.clientX - from)}px`;
      mark.style.top = `${box.top + scrollY}px`;
      mark.style.height = `${box.height}px`;
    });
    const end = (event) => {
      const begun = from;
      from = null;
      if (mark) mark.remove();
      const dragged = mark !== null;
      mark = null;
      if (begun === null || !dragged || event.type === "pointercancel") return;
      const [a, b] = [stepAt(begun), stepAt(event.clientX)].sort((one, other) => one - other);
      if (b > a) open(figure, [a, b], true);
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  }

  readColours();
  figures.forEach(watch);

  function recolour() {
    readColours();
    for (const { u, retell } of opened.values()) {
      u.redraw(false, true);
      retell();
    }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ["class", "data-theme"] });
})();

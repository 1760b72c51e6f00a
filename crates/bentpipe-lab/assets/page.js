// Draws the report's charts from the JSON beside it. Text from the record reaches the page only as text content.
(function () {
  "use strict";

  // Lines differ in lightness and in dashes, so that they can be told apart without colour.
  var LIGHT = ["#0b57b0", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#be185d", "#78500f", "#4b5563"];
  var DARK = ["#7db7ff", "#ffab66", "#5fdd92", "#cfa5ff", "#56d6e6", "#ff94c5", "#dcb877", "#b8c1cc"];
  var DASHES = [[], [8, 3], [2, 3], [12, 3, 2, 3]];
  var CSS_DASHES = ["solid", "dashed", "dotted", "dashed"];
  var WHOLE = [];
  for (var power = 1; power <= 1e15; power *= 10) WHOLE.push(power, 2 * power, 5 * power);
  var HEIGHT = 210, PRINT_WIDTH = 690, PRINT_HALF = 335, PRINT_HEIGHT = 170;

  var charts = JSON.parse(document.getElementById("chart-data").textContent);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var printing = false;
  var drawn = [];
  // Groups whose time axis was zoomed by dragging; a double click shows all again.
  var zoomed = {};

  function theme() {
    return dark.matches && !printing
      ? { lines: DARK, text: "#a3adb8", grid: "#2a323b" }
      : { lines: LIGHT, text: "#57606a", grid: "#e4e8ec" };
  }

  function digits(value) {
    if (value == null) return "–";
    if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(0);
    return Math.abs(value) >= 1e6 ? value.toPrecision(4) : String(+value.toPrecision(4));
  }

  function axis(colours, label, more) {
    return Object.assign({
      label: label, labelSize: 20, labelGap: 2, labelFont: "12px sans-serif", font: "12px sans-serif",
      stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1, size: 5 },
      gap: 4, values: function (u, splits) { return splits.map(function (v) { return v == null ? "" : digits(v); }); }
    }, more);
  }

  function options(chart, width) {
    var colours = theme();
    var series = chart.lines.map(function (line, i) {
      var few = line.x.length <= 60;
      return {
        label: line.label, stroke: colours.lines[i % colours.lines.length], width: 1.75, spanGaps: true,
        dash: line.published ? [] : DASHES[i % DASHES.length],
        // What was published is symbols, never a line.
        points: { show: few || line.published, size: line.published ? 9 : 4, fill: line.published ? "transparent" : colours.lines[i % colours.lines.length] },
        paths: line.published ? function () { return null; } : chart.step ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
        value: function (u, v) { return v == null ? "" : digits(v) + (chart.unit ? " " + chart.unit : ""); }
      };
    });
    // Packets and bits come whole: no ticks between them.
    var whole = chart.lines.every(function (line) { return line.y.every(Number.isInteger); });
    return {
      width: width, height: printing ? PRINT_HEIGHT : HEIGHT,
      padding: [8, 8, 0, 0],
      cursor: {
        sync: { key: chart.group }, y: false, points: { size: 6 }, drag: { x: true, y: false },
        bind: {
          dblclick: function (u, target, handler) {
            return function (event) { zoomed[chart.group] = false; handler(event); };
          }
        }
      },
      legend: { markers: { width: 3, dash: function (u, i) { return CSS_DASHES[(i - 1) % CSS_DASHES.length]; } } },
      scales: {
        x: {
          time: false, distr: chart.x_log ? 3 : 1,
          range: function (u, min, max) { return zoomed[chart.group] ? [min, max] : [chart.x_min || 0, chart.x_max]; }
        },
        y: { range: function (u, min, max) { return uPlot.rangeNum(Math.min(0, min || 0), max > 0 ? max : 1, { min: { pad: 0 }, max: { pad: 0.08 } }); } }
      },
      axes: [
        axis(colours, chart.x_label || "seconds since the case started", { size: 24, space: 50 }),
        axis(colours, chart.y_label, {
          space: 32,
          incrs: whole ? WHOLE : undefined,
          size: function (u, values) {
            var longest = (values || []).reduce(function (n, v) { return Math.max(n, v.length); }, 1);
            return 14 + 7 * longest;
          }
        })
      ],
      series: [{
        label: chart.x_label || "Time",
        value: function (u, v) { return v == null ? "" : digits(v) + (chart.x_label ? "" : " s"); }
      }].concat(series),
      hooks: { ready: [keyboard], setSelect: [function (u) { if (u.select.width > 0) zoomed[chart.group] = true; }] }
    };
  }

  // The legend switches lines with a click; let the keyboard do so too.
  function keyboard(u) {
    u.root.querySelectorAll(".u-series th").forEach(function (heading, i) {
      if (i === 0) return;
      heading.tabIndex = 0;
      heading.title = "Show or hide this line";
      heading.addEventListener("keydown", function (event) {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); heading.click(); }
      });
    });
  }

  function widthOf(element) {
    if (!printing) return Math.max(200, Math.floor(element.clientWidth));
    // The page is not laid out for paper yet: two columns, the last one across both if it is alone, as in the style.
    var figure = element.closest("figure"), all = figure.parentNode.children;
    var alone = figure === all[all.length - 1] && all.length % 2 === 1;
    return alone ? PRINT_WIDTH : PRINT_HALF;
  }

  function drawOne(chart) {
    var element = document.getElementById(chart.id);
    var tables = chart.lines.map(function (line) { return [line.x, line.y]; });
    var data = tables.length === 1 ? tables[0] : uPlot.join(tables);
    drawn.push({ element: element, plot: new uPlot(options(chart, widthOf(element)), data, element) });
  }

  // Of many charts, those that are near the screen; the others when they come near, or when the page is printed.
  var AT_ONCE = 30, observer = null;
  function draw() {
    drawn.forEach(function (one) { one.plot.destroy(); });
    drawn = [];
    zoomed = {};
    if (observer) observer.disconnect();
    observer = null;
    if (printing || charts.length <= AT_ONCE || !("IntersectionObserver" in window)) {
      charts.forEach(drawOne);
      return;
    }
    var byId = {};
    observer = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        observer.unobserve(entry.target);
        drawOne(byId[entry.target.id]);
      });
    }, { rootMargin: "800px" });
    charts.forEach(function (chart) {
      byId[chart.id] = chart;
      observer.observe(document.getElementById(chart.id));
    });
  }

  // Long tables: a field that leaves the rows with its text, and headings that sort. A workload's rows stay together.
  function searchable(table) {
    var box = table.parentNode, single = table.hasAttribute("data-sorts");
    var parts = Array.prototype.slice.call(single ? table.tBodies[0].rows : table.tBodies);
    var texts = null;
    var bar = document.createElement("div"), field = document.createElement("input"), count = document.createElement("span");
    bar.className = "search";
    field.type = "search";
    field.placeholder = "Show only rows with …";
    field.setAttribute("aria-label", "Show only the rows that contain this text: " + table.caption.textContent);
    count.className = "quiet";
    count.setAttribute("aria-live", "polite");
    bar.append(field, count);
    box.parentNode.insertBefore(bar, box);
    field.addEventListener("input", function () {
      texts = texts || parts.map(function (part) { return part.textContent.toLowerCase(); });
      var words = field.value.toLowerCase().split(/\s+/).filter(Boolean), left = 0;
      parts.forEach(function (part, i) {
        part.hidden = !words.every(function (word) { return texts[i].includes(word); });
        if (!part.hidden) left += 1;
      });
      count.textContent = words.length ? left + " of " + parts.length : "";
    });
    if (!single) return;
    var body = table.tBodies[0], heads = Array.prototype.slice.call(table.tHead.rows[0].cells);
    var collator = new Intl.Collator("en", { numeric: true });
    function sort(column) {
      var down = heads[column].getAttribute("aria-sort") === "ascending";
      var keys = new Map(Array.prototype.map.call(body.rows, function (row) {
        var cell = row.cells[column], order = cell.getAttribute("data-order");
        return [row, order === null ? cell.textContent.trim() : Number(order)];
      }));
      var rows = Array.prototype.slice.call(body.rows).sort(function (a, b) {
        var x = keys.get(a), y = keys.get(b);
        // Rows without a value come last, whichever way.
        if ((x === "–") !== (y === "–")) return x === "–" ? 1 : -1;
        var order = typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y));
        return down ? -order : order;
      });
      heads.forEach(function (head) { head.setAttribute("aria-sort", "none"); });
      heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append.apply(body, rows);
    }
    heads.forEach(function (head, column) {
      head.setAttribute("aria-sort", "none");
      head.tabIndex = 0;
      head.title = "Sort by this column";
      head.addEventListener("click", function () { sort(column); });
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(column); }
      });
    });
  }

  document.querySelectorAll("table[data-long]").forEach(searchable);

  function resize() {
    if (printing) return;
    drawn.forEach(function (one) {
      var width = widthOf(one.element);
      if (width !== one.plot.width) one.plot.setSize({ width: width, height: HEIGHT });
    });
  }

  // Paper: light colours, its own width, and everything that is folded away.
  var opened = [];
  function print(on) {
    if (printing === on) return;
    printing = on;
    if (on) {
      opened = Array.prototype.filter.call(document.querySelectorAll("details"), function (d) { return !d.open; });
    }
    opened.forEach(function (d) { d.open = on; });
    draw();
  }

  draw();
  window.addEventListener("resize", resize);
  dark.addEventListener("change", draw);
  window.addEventListener("beforeprint", function () { print(true); });
  window.addEventListener("afterprint", function () { print(false); });
})();

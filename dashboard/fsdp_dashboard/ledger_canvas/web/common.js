// What the scripts of the ledger share; ledger_component.py joins them into one, in its order.

async function unpacked(packed) {
  // Columns of float64 differences, bytes of equal weight together, deflated.
  const squeezed = Uint8Array.from(atob(packed.text), (c) => c.charCodeAt(0));
  const stream = new Blob([squeezed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const { rows, columns } = packed;
  const count = rows * columns.length;
  const plain = new Uint8Array(count * 8);
  for (let b = 0; b < 8; b++) for (let i = 0; i < count; i++) plain[i * 8 + b] = bytes[b * count + i];
  const values = new Float64Array(plain.buffer);
  const found = { rows, column: {}, bin: packed.bin_events };
  columns.forEach((name, k) => {
    const column = values.subarray(k * rows, (k + 1) * rows);
    for (let i = 1; i < rows; i++) column[i] += column[i - 1];
    found.column[name] = column;
  });
  return found;
}

function add(parent, tag, kind = "") {
  const found = document.createElement(tag);
  if (kind) found.className = kind;
  parent.append(found);
  return found;
}

/** Index of the first value above v, of values in order. */
function after(values, v) {
  let a = 0, b = values.length;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (values[middle] <= v) a = middle + 1;
    else b = middle;
  }
  return a;
}

function before(values, v) {
  let a = 0, b = values.length;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (values[middle] < v) a = middle + 1;
    else b = middle;
  }
  return a;
}

function after2(pairs, v) {
  return after(pairs.map(([t]) => t), v);
}

function ticks(from, to, wanted) {
  const rough = (to - from) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) found.push(k * step);
  return found;
}

function plain(value) {
  return Number(value.toPrecision(9)).toString();
}

/** As humanize.bytes_text. */
function bytes(size) {
  for (const [name, unit] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (size >= unit) return `${(size / unit).toFixed(2)} ${name}`;
  }
  return `${size} B`;
}

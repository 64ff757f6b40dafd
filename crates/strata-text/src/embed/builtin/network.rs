//! The network of universal-sentence-encoder-multilingual v3: a convolutional n-gram encoder over token embeddings.
//!
//! Rows of `x` are tokens. With `E` = 512, `C` = 256, `F` = E + 3C:
//!
//! ```text
//! e        = table[id]                                      quantised, one scale and offset per chunk of the table
//! x        = LN(e · proj + b)                 (3C)          cut into x_2, x_3, x_5
//! x_n     += relu(window_n(x_n) · w_n + b_n)  (C)           twice; n tokens wide, zero beyond the text's ends
//! f        = LN(e | x_2 | x_3 | x_5)          (F)
//! m        = (sum f · cnn + T · b) / sqrt(T)  (E)           over the T tokens of a text
//! y0       = relu(m · d0), y1 = relu(m · p1 + y0 · d1), y2 = relu(y1 · d2), z = tanh(y1 · p3 + y2 · d3)
//! ```

use super::npz::Arrays;
use crate::embed::EmbedError;

/// Length of an embedding.
pub(super) const E: usize = 512;
const C: usize = 256;
const PROJECTED: usize = 3 * C;
const F: usize = E + PROJECTED;
const HIDDEN: usize = 320;
/// The table is stored in chunks; row `id` is row `id / CHUNKS` of chunk `id % CHUNKS`.
const CHUNKS: usize = 17;
/// Width of each convolution, and how many tokens of it stand left of the token.
const WIDTHS: [(usize, usize); 3] = [(2, 0), (3, 1), (5, 2)];

struct Norm {
    gain: Vec<f32>,
    bias: Vec<f32>,
}

struct Convolution {
    weights: Vec<f32>,
    bias: Vec<f32>,
}

/// One of the three n-gram branches.
struct Branch {
    width: usize,
    left: usize,
    steps: [Convolution; 2],
}

pub(super) struct Network {
    /// Kept as bytes (65 MB instead of 260 MB); a row is scaled when it is looked up.
    table: Vec<Vec<u8>>,
    rows: usize,
    scale: Vec<f32>,
    offset: Vec<f32>,
    /// Of the three branches side by side: one product and one norm serve all.
    projection: Vec<f32>,
    projection_bias: Vec<f32>,
    projection_norm: Norm,
    branches: [Branch; 3],
    norm: Norm,
    cnn: Vec<f32>,
    cnn_bias: Vec<f32>,
    d0: Vec<f32>,
    p1: Vec<f32>,
    d1: Vec<f32>,
    d2: Vec<f32>,
    p3: Vec<f32>,
    d3: Vec<f32>,
    epsilon: f32,
}

impl Network {
    /// Takes the arrays; every shape is checked here, so that the arithmetic below needs no check.
    ///
    /// # Errors
    /// [`EmbedError::Model`] naming the array that is missing or of another shape.
    pub(super) fn new(mut arrays: Arrays, ids: usize) -> Result<Self, EmbedError> {
        let rows = ids.div_ceil(CHUNKS);
        let table = (1..=CHUNKS).map(|chunk| arrays.bytes(&format!("q{chunk}"), &[rows, E])).collect::<Result<_, _>>()?;
        let mut branch = |(width, left): (usize, usize)| -> Result<Branch, EmbedError> {
            let mut step = |k: usize| -> Result<Convolution, EmbedError> {
                Ok(Convolution {
                    weights: arrays.floats(&format!("w{k}_{width}"), &[width * C, C])?,
                    bias: arrays.floats(&format!("b{k}_{width}"), &[C])?,
                })
            };
            Ok(Branch { width, left, steps: [step(1)?, step(2)?] })
        };
        let branches = [branch(WIDTHS[0])?, branch(WIDTHS[1])?, branch(WIDTHS[2])?];
        let mut projection = vec![0.0; E * PROJECTED];
        let (mut projection_bias, mut gain, mut bias) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (width, _)) in WIDTHS.iter().enumerate() {
            let part = arrays.floats(&format!("proj{width}"), &[E, C])?;
            for (row, from) in projection.chunks_exact_mut(PROJECTED).zip(part.chunks_exact(C)) {
                row[i * C..][..C].copy_from_slice(from);
            }
            projection_bias.extend(arrays.floats(&format!("proj_b{width}"), &[C])?);
            gain.extend(arrays.floats(&format!("ln_g{width}"), &[C])?);
            bias.extend(arrays.floats(&format!("ln_b{width}"), &[C])?);
        }
        Ok(Self {
            table,
            rows,
            scale: arrays.floats("scale", &[CHUNKS])?,
            offset: arrays.floats("lo", &[CHUNKS])?,
            projection,
            projection_bias,
            projection_norm: Norm { gain, bias },
            branches,
            norm: Norm { gain: arrays.floats("ln_g", &[F])?, bias: arrays.floats("ln_b", &[F])? },
            cnn: arrays.floats("cnn_W", &[F, E])?,
            cnn_bias: arrays.floats("cnn_b", &[E])?,
            d0: arrays.floats("d0", &[E, HIDDEN])?,
            p1: arrays.floats("p1", &[E, HIDDEN])?,
            d1: arrays.floats("d1", &[HIDDEN, HIDDEN])?,
            d2: arrays.floats("d2", &[HIDDEN, E])?,
            p3: arrays.floats("p3", &[HIDDEN, E])?,
            d3: arrays.floats("d3", &[E, E])?,
            epsilon: arrays.floats("eps", &[])?.first().copied().unwrap_or(1e-12),
        })
    }

    /// Embeds texts given as token ids, all in one pass: their tokens stand below each other in every matrix. Not
    /// normalised. An id beyond the table reads as the unknown one.
    pub(super) fn forward(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let tokens: usize = texts.iter().map(Vec::len).sum();
        let mut embedded = vec![0.0; tokens * E];
        // Of each token: first and last token of its text.
        let mut bounds = Vec::with_capacity(tokens);
        for ids in texts {
            let start = bounds.len();
            for id in ids {
                let row = bounds.len() * E;
                self.look_up(*id, &mut embedded[row..row + E]);
                bounds.push((start, start + ids.len()));
            }
        }
        let mut features = vec![0.0; tokens * F];
        for (feature, e) in features.chunks_exact_mut(F).zip(embedded.chunks_exact(E)) {
            feature[..E].copy_from_slice(e);
        }
        let mut projected = product(&embedded, &self.projection, tokens, E, PROJECTED);
        for row in projected.chunks_exact_mut(PROJECTED) {
            add(row, &self.projection_bias);
            self.normalise(row, &self.projection_norm);
        }
        for (i, branch) in self.branches.iter().enumerate() {
            let own = projected.chunks_exact(PROJECTED).flat_map(|row| &row[i * C..][..C]).copied().collect();
            let x = convolve(branch, own, &bounds);
            for (feature, x) in features.chunks_exact_mut(F).zip(x.chunks_exact(C)) {
                feature[E + i * C..][..C].copy_from_slice(x);
            }
        }
        for feature in features.chunks_exact_mut(F) {
            self.normalise(feature, &self.norm);
        }
        self.pool(texts, &features)
    }

    fn look_up(&self, id: u32, out: &mut [f32]) {
        let id = if (id as usize) < self.rows * CHUNKS { id as usize } else { 0 };
        let (chunk, row) = (id % CHUNKS, id / CHUNKS);
        let (scale, offset) = (self.scale[chunk], self.offset[chunk]);
        for (o, q) in out.iter_mut().zip(&self.table[chunk][row * E..][..E]) {
            *o = f32::from(*q) * scale + offset;
        }
    }

    fn pool(&self, texts: &[Vec<u32>], features: &[f32]) -> Vec<Vec<f32>> {
        let count = texts.len();
        let mut sums = vec![0.0; count * F];
        let mut rows = features.chunks_exact(F);
        for (sum, ids) in sums.chunks_exact_mut(F).zip(texts) {
            for row in rows.by_ref().take(ids.len()) {
                add(sum, row);
            }
        }
        let mut mean = product(&sums, &self.cnn, count, F, E);
        for (row, ids) in mean.chunks_exact_mut(E).zip(texts) {
            let length = ids.len().max(1) as f32;
            for (m, bias) in row.iter_mut().zip(&self.cnn_bias) {
                *m = (*m + length * bias) / length.sqrt();
            }
        }
        let mut y0 = product(&mean, &self.d0, count, E, HIDDEN);
        relu(&mut y0);
        let mut y1 = product(&mean, &self.p1, count, E, HIDDEN);
        add(&mut y1, &product(&y0, &self.d1, count, HIDDEN, HIDDEN));
        relu(&mut y1);
        let mut y2 = product(&y1, &self.d2, count, HIDDEN, E);
        relu(&mut y2);
        let mut z = product(&y1, &self.p3, count, HIDDEN, E);
        add(&mut z, &product(&y2, &self.d3, count, E, E));
        z.chunks_exact(E).map(|row| row.iter().map(|v| v.tanh()).collect()).collect()
    }

    fn normalise(&self, row: &mut [f32], norm: &Norm) {
        let length = row.len() as f32;
        let mean = row.iter().sum::<f32>() / length;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / length;
        let factor = 1.0 / (variance + self.epsilon).sqrt();
        for ((v, gain), bias) in row.iter_mut().zip(&norm.gain).zip(&norm.bias) {
            *v = (*v - mean) * factor * gain + bias;
        }
    }
}

/// The two steps of a branch over its part of the projection.
fn convolve(branch: &Branch, mut x: Vec<f32>, bounds: &[(usize, usize)]) -> Vec<f32> {
    let tokens = bounds.len();
    let width = branch.width;
    let mut window = vec![0.0; tokens * width * C];
    for step in &branch.steps {
        window.fill(0.0);
        for (token, (start, end)) in bounds.iter().enumerate() {
            for j in 0..width {
                if let Some(neighbour) = (token + j).checked_sub(branch.left).filter(|n| (*start..*end).contains(n)) {
                    window[(token * width + j) * C..][..C].copy_from_slice(&x[neighbour * C..][..C]);
                }
            }
        }
        let mut y = product(&window, &step.weights, tokens, width * C, C);
        for (x, y) in x.chunks_exact_mut(C).zip(y.chunks_exact_mut(C)) {
            add(y, &step.bias);
            relu(y);
            add(x, y);
        }
    }
    x
}

fn add(to: &mut [f32], from: &[f32]) {
    for (t, f) in to.iter_mut().zip(from) {
        *t += f;
    }
}

fn relu(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v = v.max(0.0));
}

/// `a` (rows × inner) times `b` (inner × columns), both row by row.
#[expect(
    unsafe_code,
    reason = "the matrix product is a C-style function over pointers; the bounds it reads and writes are asserted right above it"
)]
fn product(a: &[f32], b: &[f32], rows: usize, inner: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * columns];
    assert!(a.len() == rows * inner && b.len() == inner * columns, "matrices have the shapes they were checked for");
    let (inner_stride, column_stride) = (inner.cast_signed(), columns.cast_signed());
    // SAFETY: with unit column stride and the strides below, the function reads rows*inner floats of `a` and inner*columns
    // of `b`, and writes rows*columns of `out`: the lengths asserted and allocated above. `out` overlaps neither.
    unsafe {
        matrixmultiply::sgemm(
            rows,
            inner,
            columns,
            1.0,
            a.as_ptr(),
            inner_stride,
            1,
            b.as_ptr(),
            column_stride,
            1,
            0.0,
            out.as_mut_ptr(),
            column_stride,
            1,
        );
    }
    out
}

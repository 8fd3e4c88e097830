//! The recurrences of ONNX in float64, one number after another: what gradients are held against.

/// One recurrent node with its operands, all in float64. Shapes are those of ONNX, layout 0.
#[derive(Clone)]
pub struct Recurrent<'a> {
    pub op: &'a str,
    pub linear_before_reset: bool,
    pub relu: bool,
    /// For each pass whether it goes backwards.
    pub ways: &'a [bool],
    pub steps: usize,
    pub samples: usize,
    pub input: usize,
    pub hidden: usize,
    pub lengths: Vec<usize>,
    pub x: Vec<f64>,
    pub w: Vec<f64>,
    pub r: Vec<f64>,
    pub b: Vec<f64>,
    pub h0: Vec<f64>,
    pub c0: Vec<f64>,
}

/// Y `[steps, passes, samples, hidden]`, Y_h and Y_c `[passes, samples, hidden]`.
pub struct Outputs(pub [Vec<f64>; 3]);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Recurrent<'_> {
    pub fn gates(&self) -> usize {
        match self.op {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        }
    }

    pub fn run(&self) -> Outputs {
        let (passes, hidden) = (self.ways.len(), self.hidden);
        let mut y = vec![0.0; self.steps * passes * self.samples * hidden];
        let mut last = vec![0.0; passes * self.samples * hidden];
        let mut cells = last.clone();
        for (pass, &backwards) in self.ways.iter().enumerate() {
            for sample in 0..self.samples {
                let state = (pass * self.samples + sample) * hidden;
                let mut h = self.h0[state..state + hidden].to_vec();
                let mut c = self.c0[state..state + hidden].to_vec();
                let length = self.lengths[sample];
                let steps: Vec<usize> =
                    if backwards { (0..length).rev().collect() } else { (0..length).collect() };
                for step in steps {
                    self.step(pass, step, sample, &mut h, &mut c);
                    let at = ((step * passes + pass) * self.samples + sample) * hidden;
                    y[at..at + hidden].copy_from_slice(&h);
                }
                last[state..state + hidden].copy_from_slice(&h);
                cells[state..state + hidden].copy_from_slice(&c);
            }
        }
        Outputs([y, last, cells])
    }

    fn step(&self, pass: usize, step: usize, sample: usize, h: &mut [f64], c: &mut [f64]) {
        let (rows, hidden) = (self.gates() * self.hidden, self.hidden);
        let x = &self.x[(step * self.samples + sample) * self.input..][..self.input];
        let dot = |weights: &[f64], v: &[f64], row: usize| -> f64 {
            let row = &weights[(pass * rows + row) * v.len()..][..v.len()];
            row.iter().zip(v).map(|(a, b)| a * b).sum()
        };
        let from_x = |row: usize| dot(&self.w, x, row) + self.b[pass * 2 * rows + row];
        let bias = |row: usize| self.b[(pass * 2 + 1) * rows + row];
        let old = h.to_vec();
        let sum = |row: usize| from_x(row) + dot(&self.r, &old, row) + bias(row);
        let reset: Vec<f64> = match self.op {
            "GRU" => (0..hidden).map(|k| old[k] * sigmoid(sum(hidden + k))).collect(),
            _ => Vec::new(),
        };
        for k in 0..hidden {
            h[k] = match self.op {
                "LSTM" => {
                    let [i, o, f] = [0, 1, 2].map(|gate| sigmoid(sum(gate * hidden + k)));
                    c[k] = f * c[k] + i * sum(3 * hidden + k).tanh();
                    o * c[k].tanh()
                }
                "GRU" => {
                    let z = sigmoid(sum(k));
                    let row = 2 * hidden + k;
                    let from_h = if self.linear_before_reset {
                        sigmoid(sum(hidden + k)) * (dot(&self.r, &old, row) + bias(row))
                    } else {
                        dot(&self.r, &reset, row) + bias(row)
                    };
                    let new = (from_x(row) + from_h).tanh();
                    (1.0 - z) * new + z * old[k]
                }
                _ if self.relu => sum(k).max(0.0),
                _ => sum(k).tanh(),
            };
        }
    }
}

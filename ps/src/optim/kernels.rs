//! The loops. Each reads and writes every array once.

use super::vectorize::vectorize;

vectorize! {
    /// `w -= lr * (scale * g + decay * w)`
    pub(super) fn sgd(w: &mut [f32], g: &[f32], lr: f32, scale: f32, decay: f32) {
        for (w, g) in w.iter_mut().zip(g) {
            *w -= lr * (scale * g + decay * *w);
        }
    }
}

vectorize! {
    /// `v = momentum * v + g'`, `w -= lr * v` with `g' = scale * g + decay * w`
    pub(super) fn momentum(
        w: &mut [f32], v: &mut [f32], g: &[f32], lr: f32, scale: f32, momentum: f32, decay: f32,
    ) {
        for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
            *v = momentum * *v + (scale * g + decay * *w);
            *w -= lr * *v;
        }
    }
}

vectorize! {
    /// `v = momentum * v + g'`, `w -= lr * (g' + momentum * v)` with `g' = scale * g + decay * w`
    pub(super) fn nesterov(
        w: &mut [f32], v: &mut [f32], g: &[f32], lr: f32, scale: f32, momentum: f32, decay: f32,
    ) {
        for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
            let g = scale * g + decay * *w;
            *v = momentum * *v + g;
            *w -= lr * (g + momentum * *v);
        }
    }
}

/// Everything of one Adam step that is the same for all elements.
#[derive(Clone, Copy)]
pub(crate) struct AdamStep {
    pub beta1: f32,
    pub beta2: f32,
    /// `1 - beta1`, `1 - beta2`
    pub keep1: f32,
    pub keep2: f32,
    /// `lr / (1 - beta1^t)`
    pub rate: f32,
    /// `1 / sqrt(1 - beta2^t)`
    pub root: f32,
    pub epsilon: f32,
    pub scale: f32,
    /// Decay that joins the gradient.
    pub coupled: f32,
    /// Factor on the weight before the step.
    pub shrink: f32,
}

vectorize! {
    /// Kingma and Ba 2015, algorithm 1, with the bias corrections folded into `rate` and `root`.
    pub(super) fn adam(w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], k: AdamStep) {
        for (((w, m), v), g) in w.iter_mut().zip(m).zip(v).zip(g) {
            let g = k.scale * g + k.coupled * *w;
            *m = k.beta1 * *m + k.keep1 * g;
            *v = k.beta2 * *v + k.keep2 * (g * g);
            *w = k.shrink * *w - k.rate * *m / (v.sqrt() * k.root + k.epsilon);
        }
    }
}

vectorize! {
    /// Linear interpolation: `v = (1 - k) v + k t`.
    pub(crate) fn lerp(v: &mut [f32], t: &[f32], k: f32) {
        for (v, t) in v.iter_mut().zip(t) {
            *v = (1.0 - k) * *v + k * t;
        }
    }
}

vectorize! {
    /// `out = k * x`
    pub(crate) fn scale_into(out: &mut [f32], x: &[f32], k: f32) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = k * x;
        }
    }
}

vectorize! {
    /// `y = k * y + x`, and whether all of it is finite then.
    pub(crate) fn scale_and_add(y: &mut [f32], x: &[f32], k: f32) -> bool {
        let mut largest = 0;
        for (y, x) in y.iter_mut().zip(x) {
            *y = k * *y + x;
            // The order of magnitudes is that of their bits.
            largest = largest.max(y.abs().to_bits());
        }
        f32::from_bits(largest).is_finite()
    }
}

vectorize! {
    /// `y = k * y + share * x`, for a mean that takes in one more part. One pass, memory speed; no allocation. Elements that only one
    /// of the two has are left as they are.
    pub fn add_to_mean(y: &mut [f32], k: f32, x: &[f32], share: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = k * *y + share * x;
        }
    }
}

vectorize! {
    /// `y += k * x`
    pub(crate) fn axpy(y: &mut [f32], x: &[f32], k: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += k * x;
        }
    }
}

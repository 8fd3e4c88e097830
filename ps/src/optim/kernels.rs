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

/// Everything of one RMSprop step that is the same for all elements.
#[derive(Clone, Copy)]
pub(crate) struct RmsStep {
    pub alpha: f32,
    /// `1 - alpha`
    pub keep: f32,
    pub epsilon: f32,
    pub momentum: f32,
    pub lr: f32,
    pub scale: f32,
    pub decay: f32,
}

vectorize! {
    /// `s = alpha * s + (1 - alpha) * g'^2`, `w -= lr * g' / (sqrt(s) + epsilon)` with `g' = scale * g + decay * w`
    pub(super) fn rmsprop(w: &mut [f32], s: &mut [f32], g: &[f32], k: RmsStep) {
        for ((w, s), g) in w.iter_mut().zip(s).zip(g) {
            let g = k.scale * g + k.decay * *w;
            *s = k.alpha * *s + k.keep * (g * g);
            *w -= k.lr * (g / (s.sqrt() + k.epsilon));
        }
    }
}

vectorize! {
    /// The same along a velocity: `v = momentum * v + g' / (sqrt(s) + epsilon)`, `w -= lr * v`
    pub(super) fn rmsprop_momentum(w: &mut [f32], s: &mut [f32], v: &mut [f32], g: &[f32], k: RmsStep) {
        for (((w, s), v), g) in w.iter_mut().zip(s).zip(v).zip(g) {
            let g = k.scale * g + k.decay * *w;
            *s = k.alpha * *s + k.keep * (g * g);
            *v = k.momentum * *v + g / (s.sqrt() + k.epsilon);
            *w -= k.lr * *v;
        }
    }
}

vectorize! {
    /// The same by the variance: `a = alpha * a + (1 - alpha) * g'`, `w -= lr * g' / (sqrt(s - a^2) + epsilon)`
    pub(super) fn rmsprop_centered(w: &mut [f32], s: &mut [f32], a: &mut [f32], g: &[f32], k: RmsStep) {
        for (((w, s), a), g) in w.iter_mut().zip(s).zip(a).zip(g) {
            let g = k.scale * g + k.decay * *w;
            *s = k.alpha * *s + k.keep * (g * g);
            *a = k.alpha * *a + k.keep * g;
            // Rounding makes it less than 0 where all gradients are alike.
            let variance = (*s - *a * *a).max(0.0);
            *w -= k.lr * (g / (variance.sqrt() + k.epsilon));
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
    /// `y = k * y + share * x`, and whether all of it is finite then.
    pub(crate) fn scale_and_add(y: &mut [f32], x: &[f32], k: f32, share: f32) -> bool {
        let mut largest = 0;
        for (y, x) in y.iter_mut().zip(x) {
            *y = k * *y + share * x;
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

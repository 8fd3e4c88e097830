//! A ready-made forward model: the multi-layer perceptron.

use crate::builder::GraphBuilder;
use crate::element::{Dim, ElementType};
use crate::proto::ModelProto;

/// A perceptron with ReLU between its layers: input `x` `[batch, sizes[0]]`, output `logits` `[batch, last
/// size]`.
///
/// Layer k has `fck.weight` `[in, out]`, drawn from a normal distribution of variance 2 / in (He et al., ICCV
/// 2015, doi:10.1109/ICCV.2015.123), and `fck.bias` `[out]`, zero. The same seed gives the same bytes on
/// every machine. `sizes` should have two entries at least.
pub fn mlp(sizes: &[usize], seed: u64) -> ModelProto {
    let mut random = SplitMix64::new(seed);
    let mut graph = GraphBuilder::new("mlp");
    let width = sizes.first().copied().unwrap_or(0);
    let mut value = graph.input("x", ElementType::F32, &[Dim::from("batch"), Dim::from(width)]);
    let layers = sizes.len().saturating_sub(1);
    for (layer, pair) in sizes.windows(2).enumerate() {
        let (rows, columns) = (pair[0], pair[1]);
        let number = layer + 1;
        let scale = (2.0 / rows.max(1) as f64).sqrt();
        let initial: Vec<f32> = (0..rows * columns).map(|_| (random.normal() * scale) as f32).collect();
        // [in, out] is what the matrix kernels read fastest in the forward pass.
        let weight = graph.weight(&format!("fc{number}.weight"), &[rows, columns], &initial);
        let bias = graph.weight(&format!("fc{number}.bias"), &[columns], &vec![0.0; columns]);
        let last = number == layers;
        let name = if last { "logits".to_owned() } else { format!("fc{number}") };
        value = graph.named(&name, "Gemm", &[&value, &weight, &bias], &[]);
        if !last {
            value = graph.named(&format!("relu{number}"), "Relu", &[&value], &[]);
        }
    }
    graph.output(&value);
    graph.finish()
}

/// The generator of Steele, Lea and Flood (OOPSLA 2014, doi:10.1145/2660193.2660195): small, and equal
/// everywhere.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A stream of numbers that depends on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform of mean 0 and variance 1: where only the spread counts, as good as a normal one and ten times
    /// as quick.
    pub fn spread(&mut self) -> f64 {
        (self.uniform() - 0.5) * 12f64.sqrt()
    }

    /// Standard normal, by the method of Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut random = SplitMix64::new(1_234_567);
        let got: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(got, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn weights_have_the_variance_of_he() {
        let model = mlp(&[64, 50, 10], 7);
        let weight = model.graph.unwrap().initializer[0].to_f32().unwrap();
        let variance = weight.iter().map(|w| f64::from(w * w)).sum::<f64>() / weight.len() as f64;
        assert!((variance * 32.0 - 1.0).abs() < 0.1, "variance {variance}, expected 1/32");
    }
}

//! The models that are trained to measure, and random data for them.

use std::{fs, io, path::Path};

use clap::ValueEnum;
use serde::Serialize;
use syncline::{JobGraph, Loss, Model, Settings, SubmitError, Training};
use syncline_onnx::{Dim, ElementType, GraphBuilder, ModelProto, SplitMix64, attr_int, attr_ints, mlp};
use syncline_runtime::Runtime;
use syncline_scheduler::spec::{DataSpec, Source};
use syncline_workers::submit::{PreparedJob, prepare};

use super::training_step::{LEARNING_RATE, RULE};

const CLASSES: u64 = 10;
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BenchModel {
    /// 784-512-256-10, batch 128
    Mlp,
    /// ResNet-20 with batch normalization, batch 32
    Resnet20,
}

impl BenchModel {
    pub(super) fn batch(self) -> u32 {
        match self {
            Self::Mlp => 128,
            Self::Resnet20 => 32,
        }
    }

    fn forward(self) -> Vec<u8> {
        match self {
            Self::Mlp => mlp(&[784, 512, 256, 10], 0).to_bytes(),
            Self::Resnet20 => resnet20().to_bytes(),
        }
    }

    /// Random samples in the format of MNIST or CIFAR-10.
    pub(super) fn write_data(self, folder: &Path, samples: u32) -> io::Result<DataSpec> {
        fs::create_dir_all(folder)?;
        let mut random = SplitMix64::new(1);
        let source = match self {
            Self::Mlp => {
                let (images, labels) = (folder.join("images"), folder.join("labels"));
                let (rows, side) = (samples.to_be_bytes(), 28u32.to_be_bytes());
                let mut pixels = [[0, 0, 8, 3], rows, side, side].concat();
                pixels.extend((0..samples as usize * 784 / 8).flat_map(|_| random.next_u64().to_le_bytes()));
                let mut classes = [[0, 0, 8, 1], rows].concat();
                classes.extend((0..samples).map(|_| (random.next_u64() % CLASSES) as u8));
                fs::write(&images, pixels)?;
                fs::write(&labels, classes)?;
                Source::idx(&images, &labels)
            }
            Self::Resnet20 => {
                let path = folder.join("cifar.bin");
                let mut records = Vec::with_capacity(samples as usize * 3_073);
                for _ in 0..samples {
                    records.push((random.next_u64() % CLASSES) as u8);
                    records.extend((0..3_072 / 8).flat_map(|_| random.next_u64().to_le_bytes()));
                }
                fs::write(&path, records)?;
                Source::cifar10([&path])
            }
        };
        Ok(DataSpec { scale: 1.0 / 255.0, ..DataSpec::new(source) })
    }

    /// A job that trains it.
    pub(super) fn job(
        self,
        runtime: &Runtime,
        id: &str,
        data: &DataSpec,
        change: impl FnOnce(&mut Settings),
    ) -> Result<PreparedJob, SubmitError> {
        let forward = Model::forward(self.forward(), Loss::SoftmaxCrossEntropy);
        let training = Training::new(forward, data.clone()).with(|settings| {
            settings.optimizer = RULE;
            settings.learning_rate = Some(LEARNING_RATE);
            settings.batch = self.batch();
            change(settings);
        });
        let mut job = JobGraph::new(id);
        job.train("train", training);
        prepare(runtime, &job)
    }
}

/// ResNet-20 of He et al. (CVPR 2016, section 4.2), with convolutions of one pixel where the shape changes
/// (option B).
fn resnet20() -> ModelProto {
    let mut graph = GraphBuilder::new("resnet20");
    let dims = [Dim::from("batch"), Dim::from(3), Dim::from(32), Dim::from(32)];
    let image = graph.input("x", ElementType::F32, &dims);
    let mut layers = Layers { graph, random: SplitMix64::new(0), count: 0 };
    let mut value = layers.convolve(&image, [16, 3, 3], 1);
    value = layers.graph.op("Relu", &[&value], &[]);
    let mut channels = 16;
    for (wide, stride) in [(16, 1), (16, 1), (16, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1)] {
        let mut inner = layers.convolve(&value, [wide, channels, 3], stride);
        inner = layers.graph.op("Relu", &[&inner], &[]);
        inner = layers.convolve(&inner, [wide, wide, 3], 1);
        let beside = match wide == channels {
            true => value,
            false => layers.convolve(&value, [wide, channels, 1], stride),
        };
        let sum = layers.graph.op("Add", &[&inner, &beside], &[]);
        value = layers.graph.op("Relu", &[&sum], &[]);
        channels = wide;
    }
    let Layers { mut graph, mut random, .. } = layers;
    let mean = graph.op("GlobalAveragePool", &[&value], &[]);
    let features = graph.op("Flatten", &[&mean], &[attr_int("axis", 1)]);
    let initial: Vec<f32> = (0..channels * 10).map(|_| (random.normal() * 0.1) as f32).collect();
    let weight = graph.weight("fc.weight", &[channels, 10], &initial);
    let bias = graph.weight("fc.bias", &[10], &[0.0; 10]);
    let scores = graph.named("logits", "Gemm", &[&features, &weight, &bias], &[]);
    graph.output(&scores);
    graph.finish()
}

struct Layers {
    graph: GraphBuilder,
    random: SplitMix64,
    count: usize,
}

impl Layers {
    /// A convolution and the normalization of its batch. `shape`: channels out, channels in, side of the
    /// kernel.
    fn convolve(&mut self, value: &str, [out, into, side]: [usize; 3], stride: i64) -> String {
        self.count += 1;
        let name = format!("conv{}", self.count);
        let deviation = (2.0 / (out * side * side) as f64).sqrt();
        let count = out * into * side * side;
        let initial: Vec<f32> = (0..count).map(|_| (self.random.normal() * deviation) as f32).collect();
        let weight = self.graph.weight(&format!("{name}.weight"), &[out, into, side, side], &initial);
        let pads = [side as i64 / 2; 4];
        let options = [attr_ints("pads", &pads), attr_ints("strides", &[stride; 2])];
        let value = self.graph.op("Conv", &[value, &weight], &options);
        let (ones, zeros) = (vec![1.0; out], vec![0.0; out]);
        let parts = [("scale", &ones), ("bias", &zeros), ("mean", &zeros), ("var", &ones)]
            .map(|(part, initial)| self.graph.weight(&format!("{name}.{part}"), &[out], initial));
        let [scale, bias, mean, var] = parts.each_ref().map(String::as_str);
        self.graph.op("BatchNormalization", &[&value, scale, bias, mean, var], &[])
    }
}

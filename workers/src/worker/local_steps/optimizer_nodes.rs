//! The optimizers as nodes of a graph: what `syncline_ps::optim::step` does to one tensor, operation by
//! operation.

use syncline_onnx::ValueId;
use syncline_scheduler::spec::Optimizer;

use super::step_graph::{ROOT, StepKind, Writer};

/// Velocity or moment of one tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub before: ValueId,
    /// Made by [`Writer::moved`].
    pub after: ValueId,
}

impl Writer {
    /// A parameter of this kind behind a step along `gradient`, which is clipped already. `slots`: as many as
    /// the optimizer has.
    pub(super) fn moved(
        &mut self,
        optimizer: &Optimizer,
        kind: &StepKind,
        weight: ValueId,
        gradient: ValueId,
        slots: &[Slot],
    ) -> ValueId {
        let rate = self.fed(&kind.rate);
        match kind.settings.optimizer(optimizer) {
            Optimizer::Sgd { weight_decay } => {
                let gradient = self.decayed(gradient, weight, weight_decay);
                self.stepped(weight, rate, gradient)
            }
            Optimizer::Momentum { momentum, nesterov, weight_decay } => {
                let gradient = self.decayed(gradient, weight, weight_decay);
                let (momentum, velocity) = (self.number(momentum), slots[0]);
                let kept = self.op("Mul", &[momentum, velocity.before]);
                self.graph.op_as(velocity.after, "", "Add", &[kept, gradient], &[]);
                let mut direction = velocity.after;
                if nesterov {
                    let ahead = self.op("Mul", &[momentum, velocity.after]);
                    direction = self.op("Add", &[gradient, ahead]);
                }
                self.stepped(weight, rate, direction)
            }
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, decoupled } => {
                let gradient = self.decayed(gradient, weight, if decoupled { 0.0 } else { weight_decay });
                let squared = self.op("Mul", &[gradient, gradient]);
                self.average(beta1, slots[0], gradient);
                self.average(beta2, slots[1], squared);
                let deviation = self.deviation(slots[1].after, epsilon);
                let along = self.op("Mul", &[rate, slots[0].after]);
                let along = self.op("Div", &[along, deviation]);
                let mut left = weight;
                if decoupled && weight_decay != 0.0 {
                    let shrink = self.fed(&kind.shrink);
                    left = self.op("Mul", &[shrink, weight]);
                }
                self.op("Sub", &[left, along])
            }
            Optimizer::RmsProp { alpha, epsilon, momentum, centered, weight_decay } => {
                let gradient = self.decayed(gradient, weight, weight_decay);
                let squared = self.op("Mul", &[gradient, gradient]);
                self.average(alpha, slots[0], squared);
                let mut square = slots[0].after;
                if centered {
                    self.average(alpha, slots[1], gradient);
                    let mean = self.op("Mul", &[slots[1].after, slots[1].after]);
                    let variance = self.op("Sub", &[square, mean]);
                    square = self.op("Relu", &[variance]);
                }
                let epsilon = self.number(epsilon);
                let root = self.op("Sqrt", &[square]);
                let root = self.op("Add", &[root, epsilon]);
                let mut direction = self.op("Div", &[gradient, root]);
                if momentum > 0.0 {
                    let momentum = self.number(momentum);
                    let kept = self.op("Mul", &[momentum, slots[1].before]);
                    self.graph.op_as(slots[1].after, "", "Add", &[kept, direction], &[]);
                    direction = slots[1].after;
                }
                self.stepped(weight, rate, direction)
            }
        }
    }

    /// Makes the next value of a moving average.
    fn average(&mut self, beta: f32, slot: Slot, sample: ValueId) {
        let (beta, keep) = (self.number(beta), self.number((1.0 - f64::from(beta)) as f32));
        let old = self.op("Mul", &[beta, slot.before]);
        let new = self.op("Mul", &[keep, sample]);
        self.graph.op_as(slot.after, "", "Add", &[old, new], &[]);
    }

    /// What an Adam step is divided by.
    fn deviation(&mut self, second_moment: ValueId, epsilon: f32) -> ValueId {
        let (root, epsilon) = (self.fed(ROOT), self.number(epsilon));
        let deviation = self.op("Sqrt", &[second_moment]);
        let deviation = self.op("Mul", &[deviation, root]);
        self.op("Add", &[deviation, epsilon])
    }

    /// The gradient with coupled weight decay.
    fn decayed(&mut self, gradient: ValueId, weight: ValueId, decay: f32) -> ValueId {
        if decay == 0.0 {
            return gradient;
        }
        let decay = self.number(decay);
        let decay = self.op("Mul", &[decay, weight]);
        self.op("Add", &[gradient, decay])
    }

    fn stepped(&mut self, weight: ValueId, rate: ValueId, direction: ValueId) -> ValueId {
        let step = self.op("Mul", &[rate, direction]);
        self.op("Sub", &[weight, step])
    }
}

//! How each chunk of a job steps: as the optimizer has it, or in runs of elements that have settings of their
//! own.

use std::collections::BTreeMap;

use syncline_scheduler::spec::{ElementRange, Layout, Optimizer};

use super::settings::chunk_sizes;
use crate::optim::SliceRule;

/// The rules of all chunks.
pub(super) struct ChunkRules {
    usual: SliceRule,
    /// Of chunks in which some elements step otherwise.
    own: BTreeMap<usize, SliceRule>,
}

impl ChunkRules {
    /// Those of the chunks that make up `range`. A tensor may go on in the next chunk, and on the next shard.
    pub(super) fn of(layout: &Layout, range: ElementRange, optimizer: &Optimizer) -> Self {
        let mut rules = Self { usual: SliceRule::usual(optimizer), own: BTreeMap::new() };
        if layout.groups(optimizer).is_empty() {
            return rules;
        }
        let mut parameters = layout.ranges().filter(|(parameter, _)| parameter.is_trained()).peekable();
        let mut at = range.start;
        for (index, (elements, trained)) in chunk_sizes(layout, range).enumerate() {
            let end = at + trained as u64;
            let mut runs = Vec::new();
            while let Some((parameter, own)) = parameters.peek() {
                let here = own.end.min(end).saturating_sub(own.start.max(at));
                runs.push((here as usize, parameter.settings));
                if own.end > end {
                    break;
                }
                parameters.next();
            }
            if runs.iter().any(|(here, settings)| *here > 0 && settings.differ_from(optimizer)) {
                rules.own.insert(index, SliceRule::of_runs(optimizer, runs));
            }
            at += elements as u64;
        }
        rules
    }

    /// That of chunk `index`.
    pub(super) fn of_chunk(&self, index: usize) -> &SliceRule {
        self.own.get(&index).unwrap_or(&self.usual)
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::{Parameter, StepSettings};

    use super::*;
    use crate::{
        optim::{self, OptimizerState},
        shard::CHUNK_ELEMENTS,
    };

    const NO_DECAY: StepSettings = StepSettings { weight_decay: Some(0.0), learning_rate_factor: 1.0 };
    const SLOW: StepSettings = StepSettings { weight_decay: None, learning_rate_factor: 0.1 };

    fn own(parameter: Parameter, settings: StepSettings) -> Parameter {
        Parameter { settings, ..parameter }
    }

    /// Tensors of a few elements, some that are longer than a chunk, an empty one, a scalar, and a buffer
    /// behind them.
    fn layout() -> Layout {
        let chunk = CHUNK_ELEMENTS as u64;
        Layout(vec![
            Parameter::trained("w", vec![chunk - 5]),
            own(Parameter::trained("b", vec![10]), NO_DECAY),
            own(Parameter::trained("scale", vec![]), SLOW),
            own(Parameter::trained("none", vec![0]), SLOW),
            own(Parameter::rows("table", vec![chunk / 4, 9], 0), SLOW),
            Parameter::trained("head", vec![chunk + 1]),
            own(Parameter::trained("bias", vec![7]), NO_DECAY),
            own(Parameter::buffer("mean", vec![chunk]), SLOW),
        ])
    }

    #[test]
    fn every_tensor_steps_with_its_settings_however_chunks_and_shards_cut_it() {
        let (layout, optimizer) = (layout(), Optimizer::adamw());
        let elements = layout.elements().unwrap();
        let start: Vec<f32> = (0..elements).map(|i| (i as f32).cos()).collect();
        let gradient: Vec<f32> = (0..elements).map(|i| ((i * 7) as f32).sin()).collect();
        // Each tensor by itself.
        let mut want = start.clone();
        for (parameter, range) in layout.ranges().filter(|(parameter, _)| parameter.is_trained()) {
            let range = range.start as usize..range.end as usize;
            let (rule, rate) =
                (parameter.settings.optimizer(&optimizer), parameter.settings.learning_rate(0.1));
            let mut state = OptimizerState::new(&rule, range.len());
            for _ in 0..2 {
                optim::step(&rule, &mut want[range.clone()], &mut state, &gradient[range.clone()], rate, 0.5);
            }
        }
        for shards in 1..=3 {
            let mut got = start.clone();
            for shard in 0..shards {
                let range = ElementRange::of_shard(elements, shard, shards);
                let rules = ChunkRules::of(&layout, range, &optimizer);
                let mut at = range.start as usize;
                for (index, (size, trained)) in chunk_sizes(&layout, range).enumerate() {
                    let mut state = OptimizerState::new(&optimizer, trained);
                    for _ in 0..2 {
                        let step = rules.of_chunk(index).next(&mut state, 0.1, 0.5);
                        step.run(&mut got[at..at + trained], &mut state, 0, &gradient[at..at + trained]);
                    }
                    at += size;
                }
            }
            assert!(got == want, "{shards} shards");
        }
    }

    #[test]
    fn chunks_without_settings_of_their_own_share_one_rule() {
        let layout = layout();
        let all = ElementRange { start: 0, end: layout.elements().unwrap() };
        let kept = |optimizer: Optimizer| {
            let rules = ChunkRules::of(&layout, all, &optimizer);
            rules.own.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(kept(Optimizer::adamw()), [0, 1, 2, 3, 4]);
        assert_eq!(kept(Optimizer::sgd()), [1, 2, 3], "no decay is no difference where there is none");
        let usual = ChunkRules::of(&layout.without_settings(), all, &Optimizer::adamw());
        assert!(usual.own.is_empty());
    }
}

//! Groups of parameters that train with another weight decay or another learning rate than the rest.

use serde::Deserialize;
use syncline_autodiff::TrainedNames;
use syncline_scheduler::spec::{Layout, Optimizer, StepSettings};

use super::{SubmitError, name_list::list};

/// Parameters of which some settings differ from those of the optimizer.
///
/// ```
/// # use syncline_workers::submit::ParameterGroup;
/// let no_decay = ParameterGroup::of(["*.bias", "*norm*"]).weight_decay(0.0);
/// let body = ParameterGroup::of(["features.*"]).learning_rate_factor(0.1);
/// let groups = vec![no_decay, body];
/// # assert_eq!(groups[0].weight_decay, Some(0.0));
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// Names or patterns such as `*.bias`, each of which means some parameter that is trained. One that
    /// several groups name belongs to the first of them.
    pub params: Vec<String>,
    /// In place of the weight decay of the optimizer.
    pub weight_decay: Option<f32>,
    /// What the learning rate of the moment is multiplied by, above 0 and up to 1000.
    pub learning_rate_factor: Option<f32>,
}

impl ParameterGroup {
    /// The parameters of these names or patterns, of which nothing differs yet.
    pub fn of(params: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let params = params.into_iter().map(Into::into).collect();
        Self { params, weight_decay: None, learning_rate_factor: None }
    }

    /// With this weight decay.
    #[must_use]
    pub fn weight_decay(self, weight_decay: f32) -> Self {
        Self { weight_decay: Some(weight_decay), ..self }
    }

    /// With the learning rate of the moment times this.
    #[must_use]
    pub fn learning_rate_factor(self, factor: f32) -> Self {
        Self { learning_rate_factor: Some(factor), ..self }
    }

    fn settings(&self) -> StepSettings {
        let learning_rate_factor = self.learning_rate_factor.unwrap_or(1.0);
        StepSettings { weight_decay: self.weight_decay, learning_rate_factor }
    }
}

/// Gives each parameter the settings of the first group that names it, and says which groups change nothing
/// with this optimizer: with another one they may. `names`: those of the trained parameters, which the layout
/// begins with.
pub(super) fn put_in_groups(
    groups: &[ParameterGroup],
    optimizer: &Optimizer,
    names: &TrainedNames<'_>,
    layout: &mut Layout,
) -> Result<Vec<String>, SubmitError> {
    let trained: Vec<&str> =
        layout.0.iter().take_while(|parameter| parameter.is_trained()).map(|p| p.name.as_str()).collect();
    let naming = naming(groups, names, &trained)?;
    let mut warnings = Vec::new();
    for (number, index) in (1..).zip(0..groups.len()) {
        if let Some(why) = why_idle(index, groups, &naming) {
            return Err(SubmitError::IdleGroup { group: number, why });
        }
        if !changes_steps(index, groups, &naming, optimizer) {
            warnings.push(format!(
                "group {number} of `groups` changes nothing: with {} its parameters train the same without it",
                optimizer.name()
            ));
        }
    }
    // Also what the optimizer says just now: it may be given another weight decay.
    for (parameter, naming) in layout.0.iter_mut().zip(&naming) {
        parameter.settings = settings_of(naming.first(), groups);
    }
    Ok(warnings)
}

/// The groups that name each trained parameter, in their order.
fn naming(
    groups: &[ParameterGroup],
    names: &TrainedNames<'_>,
    trained: &[&str],
) -> Result<Vec<Vec<usize>>, SubmitError> {
    let mut naming: Vec<Vec<usize>> = vec![Vec::new(); trained.len()];
    for (index, group) in groups.iter().enumerate() {
        for pattern in &group.params {
            let meant = names.meant_by(pattern);
            if meant.is_empty() {
                let (named, trained) = (names.with_near(pattern), list(trained));
                return Err(SubmitError::NoSuchParameter { group: index + 1, named, trained });
            }
            for place in meant {
                if naming[place].last() != Some(&index) {
                    naming[place].push(index);
                }
            }
        }
    }
    Ok(naming)
}

/// Why a group changes nothing, whatever the optimizer is; `None` if it may change something.
fn why_idle(index: usize, groups: &[ParameterGroup], naming: &[Vec<usize>]) -> Option<&'static str> {
    let group = &groups[index];
    if group.weight_decay.is_none() && group.learning_rate_factor.is_none() {
        return Some("it needs `weight_decay`, `learning_rate_factor`, or both");
    }
    if group.params.is_empty() {
        return Some("it names no parameters");
    }
    let has_own = naming.iter().any(|naming| naming.first() == Some(&index));
    (!has_own).then_some("all parameters that it names belong to groups before it")
}

/// Whether some parameter trains otherwise than it would without the group.
fn changes_steps(
    index: usize,
    groups: &[ParameterGroup],
    naming: &[Vec<usize>],
    optimizer: &Optimizer,
) -> bool {
    let steps = |group: Option<&usize>| {
        let settings = settings_of(group, groups);
        (settings.optimizer(optimizer), settings.learning_rate_factor)
    };
    // Without this group a parameter would belong to the next one that names it.
    let own = naming.iter().filter(|naming| naming.first() == Some(&index));
    own.into_iter().any(|naming| steps(naming.first()) != steps(naming.get(1)))
}

fn settings_of(group: Option<&usize>, groups: &[ParameterGroup]) -> StepSettings {
    group.map(|group| groups[*group].settings()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use syncline_onnx::ModelProto;
    use syncline_scheduler::spec::Parameter;

    use super::*;

    const NAMES: [&str; 5] = ["body.weight", "body.bias", "norm.weight", "head.weight", "head.bias"];

    fn grouped(groups: &[ParameterGroup], optimizer: Optimizer) -> Result<Vec<StepSettings>, String> {
        put(groups, optimizer).map(|(settings, _)| settings)
    }

    /// What all parameters have then, and the warnings.
    fn put(
        groups: &[ParameterGroup],
        optimizer: Optimizer,
    ) -> Result<(Vec<StepSettings>, Vec<String>), String> {
        let trained = NAMES.iter().map(|name| Parameter::trained(*name, vec![2]));
        let mut layout = Layout(trained.chain([Parameter::buffer("norm.mean", vec![2])]).collect());
        let names = TrainedNames::new(&ModelProto::default(), NAMES.to_vec());
        let warnings =
            put_in_groups(groups, &optimizer, &names, &mut layout).map_err(|error| error.to_string())?;
        Ok((layout.0.iter().map(|parameter| parameter.settings).collect(), warnings))
    }

    fn of(params: &[&str]) -> ParameterGroup {
        ParameterGroup::of(params.iter().copied())
    }

    #[test]
    fn a_parameter_belongs_to_the_first_group_that_names_it() {
        let groups = [
            of(&["head.*"]).learning_rate_factor(1.0),
            of(&["*.bias", "norm.weight"]).weight_decay(0.0).learning_rate_factor(0.1),
            of(&["*"]).learning_rate_factor(0.1),
        ];
        let usual = StepSettings::default();
        let slow = StepSettings { learning_rate_factor: 0.1, ..usual };
        let flat = StepSettings { weight_decay: Some(0.0), ..slow };
        let want = [slow, flat, flat, usual, usual, usual];
        assert_eq!(grouped(&groups, Optimizer::adamw()).unwrap(), want);
        assert_eq!(grouped(&[], Optimizer::adamw()).unwrap(), [usual; 6]);
    }

    #[test]
    fn a_decay_that_the_optimizer_has_as_well_stays_where_it_is_given_another_one() {
        let groups = [of(&["*.bias"]).weight_decay(0.0)];
        let settings = grouped(&groups, Optimizer::sgd()).unwrap();
        let decays = settings.iter().map(|of| of.optimizer(&Optimizer::sgd().with_weight_decay(0.1)));
        let has_none = |optimizer| optimizer == Optimizer::sgd();
        assert_eq!(decays.map(has_none).collect::<Vec<_>>(), [false, true, false, false, true, false]);
    }

    #[test]
    fn a_pattern_that_means_no_trained_parameter_is_refused_with_those_that_there_are() {
        for (pattern, named) in
            [("norm.*ean", "`norm.*ean`"), ("head.wieght", "`head.wieght` (near: `head.weight`)")]
        {
            let groups = [of(&["*.bias"]).weight_decay(0.0), of(&["head.*", pattern]).weight_decay(0.0)];
            let trained = "`body.weight`, `body.bias`, `norm.weight`, `head.weight`, `head.bias`";
            let want = format!(
                "[E378] group 2: no parameter that is trained is called {named}; there are {trained}"
            );
            assert_eq!(grouped(&groups, Optimizer::adamw()).unwrap_err(), want);
        }
    }

    #[test]
    fn a_group_that_changes_nothing_with_any_optimizer_is_refused_with_the_reason() {
        let bias = || of(&["*.bias"]);
        #[rustfmt::skip]
        let cases = [
            (vec![bias()],                            "[E379] group 1 changes nothing: it needs"),
            (vec![of(&[]).weight_decay(0.0)],         "[E379] group 1 changes nothing: it names no"),
            (vec![bias().weight_decay(0.0), of(&["head.bias"]).weight_decay(0.5)],
                                                      "[E379] group 2 changes nothing: all parameters"),
        ];
        for (groups, want) in cases {
            let refused = grouped(&groups, Optimizer::adamw()).unwrap_err();
            assert!(refused.starts_with(want), "{refused}");
        }
    }

    #[test]
    fn a_group_that_changes_nothing_with_this_optimizer_is_warned_of() {
        let bias = || of(&["*.bias"]);
        let (adamw, sgd) = (Optimizer::adamw(), Optimizer::sgd());
        #[rustfmt::skip]
        let cases = [
            (adamw, vec![bias().weight_decay(0.01)],                                 true),
            (adamw, vec![bias().learning_rate_factor(1.0)],                          true),
            (sgd,   vec![bias().weight_decay(0.0)],                                  true),
            (adamw, vec![bias().weight_decay(0.0)],                                  false),
            (sgd,   vec![bias().weight_decay(0.1)],                                  false),
            (sgd,   vec![bias().weight_decay(0.0).learning_rate_factor(0.1)],        false),
            (adamw, vec![of(&["head.bias"]).weight_decay(0.01), bias().weight_decay(0.0)], false),
            (adamw, vec![of(&["head.bias"]).weight_decay(0.0), bias().weight_decay(0.0)],  true),
        ];
        for (optimizer, groups, is_warned_of) in cases {
            let warnings = put(&groups, optimizer).unwrap().1;
            assert_eq!(warnings.len(), usize::from(is_warned_of), "{groups:?}: {warnings:?}");
            let want = format!("group 1 of `groups` changes nothing: with {} its", optimizer.name());
            assert!(warnings.iter().all(|warning| warning.starts_with(&want)), "{warnings:?}");
        }
    }
}

//! Which tables can be trained by rows: those that nothing reads but a lookup by ids, and ids that nothing
//! reads but lookups.
//!
//! A training graph takes such a table with any number of rows. Whoever runs it may give it the rows that a
//! batch reads, and positions among these in the place of the ids: loss and gradients are the same, and the
//! gradient is one for these rows.
//!
//! | what reads | is allowed |
//! |---|---|
//! | a table | `Gather` along axis 0, as its data |
//! | an input of ids | the same, as its indices; before it what only moves or converts integers; `Shape` and `Size` |
//!
//! Tables whose ids come from the same inputs make a group: the rows of one are those of all.

mod lookups;

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::{GraphProto, TensorProto};
use syncline_onnx::{Dim, ModelProto, TensorType, Types};

use crate::error::AutodiffError;
use crate::forward::{TiedNames, hold_padding, select};
use crate::glob::{Patterns, matches};
use crate::options::DeriveOptions;
use crate::param_list::unknown_pattern;
use crate::training_graph::Param;
use lookups::Lookups;

/// The tables that are trained by rows, and what chooses these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowTables {
    /// Names of parameters, with the number of their group.
    pub tables: Vec<(String, u32)>,
    /// Data inputs whose integers are ids of rows, with the number of the group.
    pub inputs: Vec<(String, u32)>,
    /// Tables that a pattern meant and that are trained as a whole, and why.
    pub whole: Vec<(String, String)>,
    /// Tables that a pattern meant beside others and that are not trained, and why.
    pub untrained: Vec<(String, String)>,
    /// Patterns that meant no table that is trained, and why.
    pub idle: Vec<(String, String)>,
}

impl RowTables {
    /// Picks the tables that `wanted` means among `params`. `untrained`: the other constants of
    /// the model, and why they are not trained.
    pub(crate) fn choose(
        graph: &GraphProto,
        types: &Types,
        params: &[Param],
        untrained: &[Untrained],
        data_inputs: &[String],
        wanted: Wanted<'_>,
    ) -> Result<Self, AutodiffError> {
        if wanted.patterns.is_empty() {
            return Ok(Self::default());
        }
        refuse_unknown(params, untrained, wanted)?;
        let lookups = Lookups::of(graph, types, data_inputs);
        let patterns = Patterns::of(wanted.patterns);
        let is_meant = |param: &&Param| wanted.tied.all(&param.name).any(|name| patterns.matches(name));
        let mut found = Vec::new();
        let mut whole = Vec::new();
        for param in params.iter().filter(is_meant) {
            match lookups.inputs_of(&param.name, &param.shape) {
                Ok(inputs) => found.push((param.name.as_str(), inputs)),
                // Of what a pattern happens to mean, only tables are of interest.
                Err(why) if wanted.names(&param.name) || lookups.reads_rows(&param.name) => {
                    whole.push((param.name.clone(), why));
                }
                Err(_) => {}
            }
        }
        lookups.settle(&mut found, &mut whole);
        if let Some((name, reason)) = whole.iter().find(|(name, _)| wanted.names(name)) {
            return Err(AutodiffError::NotByRows { name: name.clone(), reason: reason.clone() });
        }
        let chosen = Self { whole, ..Self::numbered(&found) };
        let idle = chosen.idle(wanted, untrained, &lookups);
        let works = |pattern: &&String| idle.iter().all(|(other, _)| other != *pattern);
        let meant =
            |name: &str| wanted.patterns.iter().filter(works).any(|pattern| wanted.tied.means(pattern, name));
        let untrained = untrained.iter().filter(|(name, _)| meant(name) && lookups.reads_rows(name));
        let untrained = untrained.map(|(name, why)| (name.to_string(), why.to_string())).collect();
        Ok(Self { idle, untrained, ..chosen })
    }

    /// The patterns of `wanted` of which nobody would learn otherwise that they mean nothing.
    fn idle(
        &self,
        wanted: Wanted<'_>,
        untrained: &[Untrained],
        lookups: &Lookups<'_>,
    ) -> Vec<(String, String)> {
        let spoken = self.tables.iter().map(|(name, _)| name).chain(self.whole.iter().map(|(name, _)| name));
        let is_idle = |pattern: &&String| !spoken.clone().any(|name| wanted.tied.means(pattern, name));
        let why = |pattern: &String| {
            let is_meant = |name| wanted.tied.means(pattern, name) && lookups.reads_rows(name);
            let table = untrained.iter().find(|(name, _)| is_meant(name));
            match table {
                Some((name, reason)) => {
                    format!("`{name}` is not trained ({reason}), and it means no other table")
                }
                None => "nothing looks up rows of what it means".to_owned(),
            }
        };
        wanted.patterns.iter().filter(is_idle).map(|pattern| (pattern.clone(), why(pattern))).collect()
    }

    /// Numbers the groups in the order of their first tables.
    fn numbered(found: &[(&str, BTreeSet<&str>)]) -> Self {
        let mut groups: Vec<&BTreeSet<&str>> = Vec::new();
        let mut chosen = Self::default();
        for (table, inputs) in found {
            let known = groups.iter().position(|group| *group == inputs);
            let group = known.unwrap_or(groups.len()) as u32;
            if known.is_none() {
                groups.push(inputs);
                chosen.inputs.extend(inputs.iter().map(|input| ((*input).to_owned(), group)));
            }
            chosen.tables.push(((*table).to_owned(), group));
        }
        chosen
    }

    /// Leaves the number of rows of the tables open.
    pub(crate) fn open_rows(&self, types: &mut Types) {
        for (name, group) in &self.tables {
            if let Some(rows) = types.get_mut(name).and_then(|ty| ty.dims.first_mut()) {
                *rows = Dim::Symbol(format!("rows_{group}"));
            }
        }
    }
}

/// Names of the trained parameters that `sparse` can mean, as far as the file tells: nothing of the model is
/// run or simplified. A table whose padding is held (`padding_idx`) cannot be. `model` is what
/// [`parse_forward`](super::parse_forward) reads.
pub fn possible_row_tables(
    model: &ModelProto,
    options: &DeriveOptions,
) -> Result<Vec<String>, AutodiffError> {
    let Some(mut graph) = model.graph.clone() else { return Ok(Vec::new()) };
    let selected = select(model, options)?;
    let trained = selected.iter().filter(|selected| selected.reason.is_none());
    let trained: HashSet<String> = trained.map(|selected| selected.name.clone()).collect();
    hold_padding(&mut graph, &trained);
    // Up to IR version 3 every initialiser is listed as an input as well.
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let data = graph.input.iter().filter(|input| !constants.contains(input.name.as_str()));
    let typed =
        data.clone().filter_map(|input| Some((input.name.clone(), TensorType::from_value_info(input)?)));
    let (types, data): (Types, Vec<String>) =
        (typed.collect(), data.map(|input| input.name.clone()).collect());
    let lookups = Lookups::of(&graph, &types, &data);
    let trained = graph.initializer.iter().filter(|tensor| trained.contains(&tensor.name));
    let by_rows = |tensor: &'_ TensorProto| lookups.inputs_of(&tensor.name, &tensor.shape()).ok();
    let mut found = trained.filter_map(|tensor| Some((tensor.name.as_str(), by_rows(tensor)?))).collect();
    lookups.settle(&mut found, &mut Vec::new());
    Ok(found.into_iter().map(|(name, _)| name.to_owned()).collect())
}

/// The name of a constant that is not trained, and why it is not.
pub(crate) type Untrained = (String, &'static str);

/// The tables that somebody wants to train by rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Names or patterns with `*`.
    pub(crate) patterns: &'a [String],
    /// What else these may call a table.
    pub(crate) tied: &'a TiedNames,
}

impl Wanted<'_> {
    /// Whether a table is wanted by a name of its own rather than by a pattern.
    fn names(&self, table: &str) -> bool {
        self.tied.all(table).any(|name| self.patterns.iter().any(|pattern| pattern == name))
    }
}

/// Refuses a name or pattern that means nothing in the model, and the name of what is not trained.
fn refuse_unknown(
    params: &[Param],
    untrained: &[Untrained],
    wanted: Wanted<'_>,
) -> Result<(), AutodiffError> {
    let Wanted { patterns, tied } = wanted;
    let trained: HashSet<&str> = params.iter().flat_map(|param| tied.all(&param.name)).collect();
    for name in patterns {
        if trained.contains(name.as_str()) || trained.iter().any(|known| matches(name, known)) {
            continue;
        }
        if let Some((known, reason)) = untrained.iter().find(|(known, _)| known == tied.in_file(name)) {
            let reason = format!("it is not trained ({reason})");
            return Err(AutodiffError::NotByRows { name: known.clone(), reason });
        }
        if !untrained.iter().any(|(known, _)| tied.means(name, known)) {
            let known =
                params.iter().map(|param| &param.name).chain(untrained.iter().map(|(known, _)| known));
            let known = known.flat_map(|name| tied.all(name));
            return Err(AutodiffError::NoSuchParameter { named: unknown_pattern(name, known) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use syncline_onnx::{ElementType, GraphBuilder, TensorType};

    use super::*;

    const ROWS: usize = 5;

    /// Ids, a table, and what else there is; the table's lookup is the output.
    fn choose(
        wanted: &[&str],
        build: impl FnOnce(&mut GraphBuilder) -> String,
    ) -> Result<RowTables, AutodiffError> {
        let mut graph = GraphBuilder::new("lookups");
        let dims = [Dim::from("batch"), Dim::from(3)];
        for (name, element) in
            [("ids", ElementType::I64), ("more", ElementType::I32), ("x", ElementType::F32)]
        {
            graph.input(name, element, &dims);
        }
        let output = build(&mut graph);
        graph.output(&output);
        let graph = graph.finish().graph.unwrap();
        let mut types = Types::default();
        let typed = |element| TensorType::new(element, dims.to_vec());
        types.insert("ids".to_owned(), typed(ElementType::I64));
        types.insert("more".to_owned(), typed(ElementType::I32));
        types.insert("x".to_owned(), typed(ElementType::F32));
        let param =
            |name: &str| Param { name: name.to_owned(), shape: vec![ROWS, 2], initial: vec![0.0; 2 * ROWS] };
        let data = ["ids", "more", "x"].map(str::to_owned);
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let frozen = [("frozen".to_owned(), "frozen"), ("scale".to_owned(), "a single number")];
        let tied =
            [("other_a", "a"), ("other_frozen", "frozen")].map(|(other, name)| (other.into(), name.into()));
        let wanted = Wanted { patterns: &wanted, tied: &BTreeMap::from(tied).into() };
        let chosen = RowTables::choose(&graph, &types, &["a", "b"].map(param), &frozen, &data, wanted)?;
        chosen.open_rows(&mut types);
        Ok(chosen)
    }

    fn names(groups: &[(String, u32)]) -> Vec<(&str, u32)> {
        groups.iter().map(|(name, group)| (name.as_str(), *group)).collect()
    }

    #[test]
    fn tables_with_the_same_ids_make_a_group_and_others_another() {
        let both = choose(&["*"], |graph| {
            let a = graph.op("Gather", &["a", "ids"], &[]);
            let b = graph.op("Gather", &["b", "ids"], &[]);
            graph.op("Add", &[&a, &b], &[])
        });
        let both = both.unwrap();
        assert_eq!((names(&both.tables), names(&both.inputs)), (vec![("a", 0), ("b", 0)], vec![("ids", 0)]));
        let apart = choose(&["a", "b"], |graph| {
            let wide = graph.op("Cast", &["more"], &[syncline_onnx::attr_int("to", 7)]);
            let a = graph.op("Gather", &["a", &wide], &[]);
            let b = graph.op("Gather", &["b", "ids"], &[]);
            graph.op("Shape", &["ids"], &[]);
            graph.op("Add", &[&a, &b], &[])
        });
        let apart = apart.unwrap();
        assert_eq!(names(&apart.tables), [("a", 0), ("b", 1)]);
        assert_eq!(names(&apart.inputs), [("more", 0), ("ids", 1)]);
    }

    #[test]
    fn what_needs_more_than_the_rows_of_a_batch_is_left_whole_and_refused_by_name() {
        type Build = fn(&mut GraphBuilder) -> String;
        #[rustfmt::skip]
        let cases: [(&str, Build, &str); 7] = [
            ("read by another node",  |g| { let y = g.op("Gather", &["a", "ids"], &[]); g.op("MatMul", &[&y, "a"], &[]) },            "(MatMul) reads it"),
            ("along another axis",    |g| g.op("Gather", &["a", "ids"], &[syncline_onnx::attr_int("axis", 1)]),                      "(Gather) reads it"),
            ("ids that are computed", |g| { let ids = g.op("Add", &["ids", "ids"], &[]); g.op("Gather", &["a", &ids], &[]) },        "no input of integers"),
            ("ids that are floats",   |g| { let ids = g.op("Cast", &["x"], &[]); g.op("Gather", &["a", &ids], &[]) },                "no input of integers"),
            ("ids used elsewhere",    |g| { g.op("Equal", &["ids", "ids"], &[]); g.op("Gather", &["a", "ids"], &[]) },               "(Equal) reads its ids"),
            ("ids that leave",        |g| { g.op("Gather", &["a", "ids"], &[]); "ids".to_owned() },                                   "reads its ids"),
            ("a table that leaves",   |g| { g.op("Gather", &["a", "ids"], &[]); "a".to_owned() },                                     "more than a lookup"),
        ];
        for (case, build, why) in cases {
            let chosen = choose(&["a*"], build).unwrap();
            assert!(chosen.tables.is_empty() && chosen.inputs.is_empty(), "{case}: {chosen:?}");
            assert!(chosen.whole[0].1.contains(why), "{case}: {chosen:?}");
            assert_eq!(choose(&["a"], build).unwrap_err().code(), "E264", "{case}");
        }
        let nothing = choose(&["c*"], |g| g.op("Gather", &["a", "ids"], &[]));
        let nothing = nothing.unwrap_err();
        assert!(nothing.code() == "E317" && nothing.to_string().contains("`c*`"), "{nothing}");
    }

    #[test]
    fn who_means_no_table_that_is_trained_is_told() {
        let frozen = |wanted| {
            choose(&[wanted], |graph| {
                let rows = graph.op("Gather", &["frozen", "ids"], &[]);
                graph.op("MatMul", &[&rows, "a"], &[])
            })
        };
        for (pattern, why) in [
            ("*", "`frozen` is not trained (frozen), and it means no other table"),
            ("fro*", "`frozen` is not trained (frozen), and it means no other table"),
            ("a*", "nothing looks up rows of what it means"),
            ("scal*", "nothing looks up rows of what it means"),
        ] {
            let chosen = frozen(pattern).unwrap();
            assert_eq!(chosen.idle, [(pattern.to_owned(), why.to_owned())], "{pattern}");
            assert!(chosen.tables.is_empty() && chosen.whole.is_empty(), "what is no table is not spoken of");
        }
        let by_name = frozen("frozen").unwrap_err();
        assert_eq!(
            by_name.to_string(),
            "[E264] `frozen` cannot be trained by rows: it is not trained (frozen)"
        );
        assert_eq!(frozen("froz").unwrap_err().code(), "E317");
        let beside = choose(&["*"], |graph| {
            let rows = graph.op("Gather", &["frozen", "ids"], &[]);
            let more = graph.op("Gather", &["a", "ids"], &[]);
            graph.op("MatMul", &[&rows, &more], &[])
        });
        let beside = beside.unwrap();
        assert_eq!(beside.untrained, [("frozen".to_owned(), "frozen".to_owned())]);
        assert!(beside.idle.is_empty(), "{beside:?}");
        let told = choose(&["*", "b*"], |graph| graph.op("Gather", &["a", "ids"], &[])).unwrap();
        assert_eq!(told.idle.iter().map(|(pattern, _)| pattern.as_str()).collect::<Vec<_>>(), ["b*"]);
    }

    #[test]
    fn a_tied_table_is_meant_by_its_other_name() {
        let lookup = |graph: &mut GraphBuilder| graph.op("Gather", &["a", "ids"], &[]);
        for wanted in ["other_a", "other_*", "a"] {
            let chosen = choose(&[wanted], lookup).unwrap();
            assert_eq!(names(&chosen.tables), [("a", 0)], "{wanted}");
            assert!(chosen.idle.is_empty(), "{wanted}: {chosen:?}");
        }
        let by_head = choose(&["other_a"], |graph| {
            let rows = graph.op("Gather", &["a", "ids"], &[]);
            graph.op("MatMul", &[&rows, "a"], &[])
        });
        assert_eq!(by_head.unwrap_err().code(), "E264");
        assert_eq!(choose(&["other_frozen"], lookup).unwrap_err().code(), "E264");
        assert_eq!(choose(&["other_c*"], lookup).unwrap_err().code(), "E317");
    }

    #[test]
    fn the_file_alone_tells_which_tables_could_train_by_rows() {
        let mut graph = GraphBuilder::new("recommender");
        let ids = graph.input("ids", ElementType::I64, &["batch".into()]);
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let [users, tied, head] =
            ["users.weight", "tied.weight", "head.weight"].map(|name| graph.weight(name, &[2, 2], &[0.5; 4]));
        let rows = graph.op("Gather", &[&users, &ids], &[]);
        let scores = graph.op("MatMul", &[&x, &head], &[]);
        let sum = graph.op("Add", &[&rows, &scores], &[]);
        graph.output(&sum);
        let options = DeriveOptions::default();
        let model = graph.finish();
        assert_eq!(possible_row_tables(&model, &options).unwrap(), ["users.weight"]);
        let frozen = DeriveOptions { freeze: vec![users], ..options };
        assert!(possible_row_tables(&model, &frozen).unwrap().is_empty(), "{tied}");
    }

    #[test]
    fn a_single_number_is_no_table() {
        let number = Param { name: "n".into(), shape: vec![], initial: vec![1.0] };
        let graph = GraphBuilder::new("number").finish().graph.unwrap();
        let all = Wanted { patterns: &["*".to_owned()], tied: &TiedNames::default() };
        let chosen = RowTables::choose(&graph, &Types::default(), &[number], &[], &[], all);
        assert!(chosen.unwrap().tables.is_empty());
    }

    #[test]
    fn a_table_that_is_left_whole_takes_others_with_the_same_ids_with_it() {
        let chosen = choose(&["*"], |graph| {
            let a = graph.op("Gather", &["a", "ids"], &[]);
            let b = graph.op("Gather", &["b", "ids"], &[]);
            let b = graph.op("MatMul", &[&b, "b"], &[]);
            graph.op("Add", &[&a, &b], &[])
        });
        assert_eq!(
            chosen.unwrap().whole.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["b", "a"]
        );
        let chosen = choose(&["*"], |graph| {
            let a = graph.op("Gather", &["a", "ids"], &[]);
            let more = graph.op("Gather", &["a", "more"], &[]);
            let b = graph.op("Gather", &["b", "ids"], &[]);
            graph.op("Sum", &[&a, &b, &more], &[])
        });
        assert!(chosen.unwrap().tables.is_empty(), "rows of one would be touched for the other");
    }
}

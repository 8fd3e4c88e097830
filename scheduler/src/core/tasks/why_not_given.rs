//! Why no worker has a task that is ready, in words.

use std::collections::BTreeSet;

use super::{leasing::offered, views::NAMED_IN_A_SENTENCE, worker_load::TaskOfJob};
use crate::{
    core::{Core, WorkerInfo},
    ids::Incarnation,
    suggestion::did_you_mean,
    tasks::{FunctionId, MemorySize, Needs},
};

impl Core {
    /// Why nobody has a task that is ready: nobody can, or who can is busy. `comes_last`: the workers that
    /// have it only where no other could.
    pub(super) fn why_not_given(
        &self,
        function: &FunctionId,
        needs: &Needs,
        comes_last: impl Fn(Incarnation) -> bool,
        now_us: u64,
    ) -> String {
        let workers = self.workers.iter().filter(|(_, about)| !about.capacity.is_none());
        let (mut all, mut named, mut have_it, mut able) = (0, 0, Vec::new(), Vec::new());
        for (worker, about) in workers {
            all += 1;
            named += u32::from(about.capacity.functions.iter().any(|f| f.name == function.name));
            have_it.extend(about.capacity.functions.contains(function).then_some((*worker, about)));
            able.extend(about.capacity.can_call(function, needs).then_some((*worker, about)));
        }
        let name = &function.name;
        match (all, named, have_it.len(), able.len()) {
            (0, ..) => "there is no worker that runs tasks".into(),
            (_, 0, ..) => {
                let functions = self.workers.values().flat_map(|about| &about.capacity.functions);
                let known: BTreeSet<&str> = functions.map(|function| function.name.as_str()).collect();
                let meant = did_you_mean(name.as_str(), known);
                let lack = match all {
                    1 => "the only worker that runs tasks does not have".to_owned(),
                    _ => format!("none of the {all} workers that run tasks has"),
                };
                format!("{lack} the function `{name}`{meant}")
            }
            (_, _, 0, _) => {
                let have =
                    if named == 1 { "1 worker has".to_owned() } else { format!("{named} workers have") };
                let types = self.in_which_types_differ(function);
                format!(
                    "{have} a function `{name}`, but with other types than the graph{types}: build both from the same definition"
                )
            }
            (_, _, _, 0) => self.why_never(function, needs, &have_it),
            _ => {
                let (last, others): (Vec<_>, Vec<_>) =
                    able.iter().partition(|(worker, _)| comes_last(*worker));
                match others.is_empty() {
                    true => self.why_not_now(needs, &able, now_us),
                    false => self.why_not_now(needs, &others, now_us) + &self.who_comes_last(&last),
                }
            }
        }
    }

    /// The types of a function as workers have them and as the graph has them, behind what says that they differ.
    /// Nothing where that shows only behind what is kept of them.
    fn in_which_types_differ(&self, function: &FunctionId) -> String {
        let functions = self.workers.values().flat_map(|about| &about.capacity.functions);
        let theirs = functions.filter(|f| f.name == function.name).map(|f| f.types.as_str());
        let theirs: BTreeSet<&str> = theirs.filter(|types| *types != function.types).collect();
        if theirs.is_empty() || function.types.is_empty() {
            return String::new();
        }
        let named: Vec<String> =
            theirs.iter().take(NAMED_IN_A_SENTENCE).map(|types| format!("`{types}`")).collect();
        let more = if theirs.len() > named.len() { " and more" } else { "" };
        format!(", {}{more} instead of `{}`", named.join(", "), function.types)
    }

    /// Who leaves a task to others, and why.
    fn who_comes_last(&self, last: &[(Incarnation, &WorkerInfo)]) -> String {
        let named = last.iter().take(NAMED_IN_A_SENTENCE).map(|(worker, _)| self.worker_name(*worker));
        let named = named.collect::<Vec<_>>().join(", ");
        match last.len() {
            0 => String::new(),
            all => {
                let comes = if all == 1 { "comes" } else { "come" };
                let more = if all > NAMED_IN_A_SENTENCE { " and more" } else { "" };
                format!(
                    "; {named}{more} {comes} last, because it, or what ran there last, failed by the machine or could not begin"
                )
            }
        }
    }

    /// None of the workers that have the function can hold it, however little they have to do.
    fn why_never(
        &self,
        function: &FunctionId,
        needs: &Needs,
        have_it: &[(Incarnation, &WorkerInfo)],
    ) -> String {
        let name = &function.name;
        let labels = needs.labels.iter().map(|(k, v)| format!(" and label {k}={v}")).collect::<String>();
        let asked = &needs.resources;
        if asked.is_none() {
            let slots = if needs.slots == 1 { "1 slot".to_owned() } else { format!("{} slots", needs.slots) };
            return format!("no worker that has `{name}` has {slots}{labels}");
        }
        let has = |(worker, about): &(Incarnation, &WorkerInfo)| {
            let offers = &about.capacity.labels;
            let own = needs.labels.keys().map(|k| match offers.get(k) {
                Some(value) => format!(" and label {k}={value}"),
                None => format!(" and no label {k}"),
            });
            let own: String = own.collect();
            format!("{} has {}{own}", self.worker_name(*worker), about.capacity.resources.in_words(asked))
        };
        let they_have: Vec<String> = have_it.iter().take(NAMED_IN_A_SENTENCE).map(has).collect();
        let slots = if needs.slots > 1 { format!(" with {} slots", needs.slots) } else { String::new() };
        let what = asked.in_words(asked);
        let they_have = they_have.join("; ");
        format!("no worker that has `{name}` can ever hold it: it needs {what}{slots}{labels}, {they_have}")
    }

    /// Some could hold it, and are busy.
    fn why_not_now(&self, needs: &Needs, able: &[(Incarnation, &WorkerInfo)], now_us: u64) -> String {
        let named = &able[..able.len().min(NAMED_IN_A_SENTENCE)];
        let asked = &needs.resources;
        let is_short = |(worker, about): &&(Incarnation, &WorkerInfo)| {
            self.fleet.free(*worker, offered(about, self.training(*worker, about))).fits(asked) == 0
        };
        let busy = |workers: &[&(Incarnation, &WorkerInfo)]| {
            let busy = workers.iter().map(|(worker, about)| self.has_now(*worker, about, now_us));
            busy.collect::<Vec<_>>().join("; ")
        };
        let (short, full): (Vec<_>, Vec<_>) = named.iter().partition(is_short);
        if short.is_empty() {
            let is_withheld = |worker| self.fleet.is_emptied(worker) || self.fleet.has_one_alone(worker);
            let what = match named.iter().any(|(worker, _)| is_withheld(*worker)) {
                true => "no slot is free for it",
                false => "all slots are taken",
            };
            return format!("{what}: {}", busy(&full));
        }
        let has = |(worker, about): &&(Incarnation, &WorkerInfo)| {
            let training = self.training(*worker, about);
            let free = self.fleet.free(*worker, offered(about, training));
            let free = match (asked.memory_bytes > 0, asked.gpus > 0) {
                (true, true) => free.in_words(asked),
                (true, false) => MemorySize(free.memory_bytes).to_string(),
                (false, _) => free.gpus.to_string(),
            };
            let there = about.capacity.resources.in_words(asked);
            let trains = if training > 0 && asked.gpus > 0 { ", and trains" } else { "" };
            format!("{} has {there}, {free} of it free{trains}", self.worker_name(*worker))
        };
        let mut each: Vec<String> = short.iter().map(has).collect();
        if !full.is_empty() {
            each.push(format!("all other slots are taken, or kept for what came before: {}", busy(&full)));
        }
        format!("it needs {}, {}", asked.in_words(asked), each.join("; "))
    }

    /// What a worker has to do, in words. Cost O(jobs that go on).
    fn has_now(&self, worker: Incarnation, about: &WorkerInfo, now_us: u64) -> String {
        let trainings = self.jobs.live().filter(|job| job.trains_on(about.process, worker));
        let trainings = trainings.map(|job| format!("training {}", job.id()));
        let held = self.task_jobs.values().filter_map(|job| Some((job, job.leases.get(&worker)?)));
        let calls = held.flat_map(|(job, tasks)| {
            let name = |task: &u32| job.class_of(*task).class.work.name();
            tasks.iter().map(move |task| format!("{} (task {task} of {})", name(task), job.id))
        });
        let all: Vec<String> = trainings.chain(calls).take(NAMED_IN_A_SENTENCE + 1).collect();
        let named = &all[..all.len().min(NAMED_IN_A_SENTENCE)];
        let more = if all.len() > named.len() { " and more" } else { "" };
        let one_at_a_time = match self.fleet.returned_in_a_row(worker, now_us) {
            None => String::new(),
            Some(count) => format!(
                ", and takes one call at a time, because the last {count} failed by its machine or could not begin"
            ),
        };
        let alone = match self.fleet.emptied_for(worker) {
            Some(TaskOfJob { job, task }) => {
                format!(", and is being emptied for task {task} of {job}, which is to be alone")
            }
            None if self.fleet.has_one_alone(worker) => ", which is to be alone there".to_owned(),
            None => String::new(),
        };
        format!("{} has {}{more}{alone}{one_at_a_time}", self.worker_name(worker), named.join(", "))
    }

    /// Slots of a worker that trainings have.
    pub(super) fn training(&self, worker: Incarnation, about: &WorkerInfo) -> u32 {
        self.training_slots.training(worker, about, &self.idle)
    }
}

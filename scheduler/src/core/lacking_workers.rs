//! A training that runs and has no worker left: since when, why none of those that are there takes part, and
//! what gives it one.

use super::{job::Job, nodes::Wait, records::Phase, state_machine::Core, utc::utc};
use crate::ids::{Incarnation, JobId};

impl Core {
    /// Notes of those among `touched` that have no worker what they wait for. Workers were placed before.
    pub(super) fn describe_lacking(&mut self, touched: &[JobId], now_us: u64) {
        let lack = |id: &JobId| Some((id.clone(), self.jobs.get(id)?.lacks_workers(now_us)?));
        let lacking: Vec<(JobId, u32)> = touched.iter().filter_map(lack).collect();
        if lacking.is_empty() {
            return;
        }
        let there = self.describe_workers();
        for (id, least) in lacking {
            let able = self.jobs.get(&id).map_or_else(Vec::new, |job| {
                job.idle_workers(&self.workers, &self.idle, &self.training_slots)
            });
            if let Some(job) = self.jobs.taken_mut(&id) {
                let lack = job.describe_lack(least, &there, &able);
                job.wait_for(Some(lack));
            }
        }
    }
}

impl Job {
    /// How many it needs at once to go on, where nobody takes part and that is what it waits for.
    fn lacks_workers(&self, now_us: u64) -> Option<u32> {
        let is_alone = self.state.phase == Phase::Running && self.members.values().all(|m| m.is_gone());
        match is_alone.then(|| self.describe_wait(now_us))?? {
            Wait::Workers(least) => Some(least),
            Wait::Told(_) => None,
        }
    }

    /// A worker has come: counts how many there are.
    pub(super) fn count_workers(&mut self) {
        let present = u32::try_from(self.present().count()).unwrap_or(u32::MAX);
        self.state.most_workers = self.state.most_workers.max(present);
        self.changes.job_state = true;
    }

    /// Notes since when nobody takes part. Called for every report: it looks no further than the first that
    /// does.
    pub(super) fn note_absence(&mut self, now_us: u64) {
        let since_us = match self.present().next() {
            None => self.state.without_workers_since_us.or(Some(now_us)),
            Some(_) => None,
        };
        if since_us != self.state.without_workers_since_us {
            let trained_us = self.training_us(now_us).unwrap_or_default();
            match since_us {
                Some(_) => self.state.evaluations.begin_absence(trained_us),
                None => self.state.evaluations.end_absence(trained_us),
            }
            self.state.without_workers_since_us = since_us;
            self.changes.job_state = true;
        }
    }

    /// What it waits for in words, given those on the workers that are `there`, of which these are idle and
    /// could take part.
    fn describe_lack(&self, least: u32, there: &str, able: &[Incarnation]) -> String {
        let excluded = self.exclusions();
        let what = match (least, excluded.is_empty()) {
            (0 | 1, true) => "a worker".to_owned(),
            (0 | 1, false) => "a worker that can run it".to_owned(),
            (least, true) => format!("{least} workers, its `min_workers`, at once"),
            (least, false) => format!("{least} workers, its `min_workers`, at once that can run it"),
        };
        let since = self.state.without_workers_since_us.map(|since_us| format!(" since {}", utc(since_us)));
        let had = match self.state.most_workers {
            0 => String::new(),
            most => format!(", and had {most} at most"),
        };
        let mut text = format!("{what}: it has had none{}{had}; {there}", since.unwrap_or_default());
        if !excluded.is_empty() {
            text.push_str(&format!("; not offered to {excluded}"));
        }
        let kept_for_others = able.len() >= least as usize;
        match able.len() {
            0 => {}
            some if kept_for_others => {
                text.push_str(&format!("; {some} of them are kept for a job that came before"));
            }
            some => text.push_str(&format!("; {some} of them could take part, which are too few")),
        }
        if !kept_for_others || least == 0 {
            text.push_str(
                "; `syncline worker --engine HOST:PORT` starts another, `syncline workers` shows all",
            );
        }
        text
    }
}

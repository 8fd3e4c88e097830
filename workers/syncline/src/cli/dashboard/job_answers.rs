//! Answers about jobs, asked for once for all who look on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex as Lock, PoisonError},
    time::Instant,
};

use tokio::sync::Mutex;

use super::{answer::Answer, overview::FRESH_FOR, route::Route};

/// What was answered last, and when.
type Kept = Mutex<Option<(Instant, Answer)>>;

#[derive(Default)]
pub(super) struct JobAnswers(Lock<HashMap<Route, Arc<Kept>>>);

impl JobAnswers {
    /// As of less than a second ago; `ask` is the answer now.
    pub(super) async fn get(&self, route: &Route, ask: impl Future<Output = Answer>) -> Answer {
        let kept = self.of(route);
        // Whoever comes while one asks is answered the same.
        let mut kept = kept.lock().await;
        if let Some((_, answer)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return answer.clone();
        }
        let answer = ask.await;
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }

    /// What is kept for a route, without those that are old by now.
    fn of(&self, route: &Route) -> Arc<Kept> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |kept: &Arc<Kept>| match kept.try_lock() {
            Ok(kept) => kept.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH_FOR),
            // Somebody asks just now.
            Err(_) => true,
        };
        all.retain(|_, kept| is_fresh(kept));
        all.entry(route.clone()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hyper::StatusCode;

    use super::*;
    use crate::cli::dashboard::answer;

    #[tokio::test]
    async fn all_who_ask_for_the_same_job_at_a_time_are_answered_by_one_question() {
        let (answers, asked) = (JobAnswers::default(), Cell::new(0));
        let job = |id: &str| Route::Job(id.parse().unwrap());
        let ask = || async {
            asked.set(asked.get() + 1);
            tokio::task::yield_now().await;
            answer::text(StatusCode::OK, "")
        };
        let (a, b) = (job("a"), job("b"));
        tokio::join!(answers.get(&a, ask()), answers.get(&a, ask()), answers.get(&b, ask()));
        assert_eq!(asked.get(), 2);
    }
}

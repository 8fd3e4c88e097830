//! Answers about jobs, asked for once for all who look on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use syncline_rpc::threads::lock;

use super::{answer::Answer, fresh::Fresh, route::Route};

#[derive(Default)]
pub(super) struct JobAnswers(Mutex<HashMap<Route, Arc<Fresh<Answer>>>>);

impl JobAnswers {
    /// As of less than a second ago; `ask` is the answer now.
    pub(super) async fn get(&self, route: &Route, ask: impl Future<Output = Answer>) -> Answer {
        self.of(route).get(ask).await
    }

    /// What is kept for a route, without those that are old by now.
    fn of(&self, route: &Route) -> Arc<Fresh<Answer>> {
        let mut all = lock(&self.0);
        all.retain(|_, kept| kept.is_fresh());
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

//! Answers each request.

use std::{net::SocketAddr, time::Duration};

use hyper::{Method, Request, StatusCode, body::Incoming, header};
use syncline_rpc::status::EngineStatus;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use super::{
    answer::{self, Answer},
    job_answers::JobAnswers,
    overview::Overviews,
    prometheus,
    route::{Route, is_ours},
};
use crate::cli::{
    Failure,
    jobs::{
        loss_curves::{self, Over},
        metrics::Training,
        status::{Status, open_barrier_of_auto},
    },
};

/// An engine that says nothing for so long hangs, or its machine is cut off: a standby has taken over by
/// then.
const ENGINE_LIMIT: Duration = Duration::from_secs(3);

pub(super) struct Site {
    client: Client,
    /// Where it listens.
    address: SocketAddr,
    /// By which names it may be asked for.
    names: Vec<String>,
    overviews: Overviews,
    job_answers: JobAnswers,
}

impl Site {
    pub(super) fn new(client: Client, address: SocketAddr, names: Vec<String>) -> Self {
        // Whoever looks on is told soon that no engine answers, and asks again by himself.
        let client = client.read_only(ENGINE_LIMIT);
        Self { client, address, names, overviews: Overviews::default(), job_answers: JobAnswers::default() }
    }

    pub(super) async fn answer(&self, request: &Request<Incoming>) -> Answer {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if !is_ours(self.address.ip(), host, &self.names) {
            let what = "ask for this page by its address, or by a name that `syncline dashboard --host NAME` was told\n";
            return answer::text(StatusCode::FORBIDDEN, what);
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return answer::text(StatusCode::METHOD_NOT_ALLOWED, "this page only reads\n");
        }
        match Route::of(request.uri().path()) {
            Some(route) => self.follow(&route).await,
            None => answer::text(StatusCode::NOT_FOUND, "there is no such page; / has everything\n"),
        }
    }

    async fn follow(&self, route: &Route) -> Answer {
        let asset = |kind, body: &'static str| answer::of_type(StatusCode::OK, kind, body);
        match route {
            Route::Page => asset("text/html; charset=utf-8", include_str!("page/index.html")),
            Route::Script => asset("text/javascript; charset=utf-8", include_str!("page/page.js")),
            Route::Style => asset("text/css; charset=utf-8", include_str!("page/page.css")),
            Route::Health => self.health().await,
            Route::Metrics => {
                let overview = self.overviews.get(&self.client).await;
                answer::of_type(StatusCode::OK, prometheus::TYPE, prometheus::text(overview.as_deref().ok()))
            }
            Route::Cluster => match self.overviews.get(&self.client).await {
                Ok(overview) => overview.whole().map_or_else(answer::failure, |whole| answer::json(&whole)),
                Err(failure) => answer::failure(&failure),
            },
            Route::Job(job) => self.job_answers.get(route, self.job(job)).await,
            Route::Events(job) => self.job_answers.get(route, self.events(job)).await,
            Route::LossCurve(job) => self.job_answers.get(route, self.loss_curve(job)).await,
        }
    }

    async fn job(&self, job: &JobId) -> Answer {
        let view = match self.client.status(job).await {
            Ok(view) => view,
            Err(error) => return failed(error),
        };
        let chosen = match open_barrier_of_auto(&view.job) {
            Some(barrier) => self.client.explain_barrier(job, barrier).await.ok().map(|barrier| barrier.why),
            None => None,
        };
        answer::json(&Status { view: &view, chosen })
    }

    async fn events(&self, job: &JobId) -> Answer {
        self.client.events(job, None).await.map_or_else(failed, |events| answer::json(&events))
    }

    async fn loss_curve(&self, job: &JobId) -> Answer {
        match self.drawn_losses(job).await {
            Ok(svg) => answer::of_type(StatusCode::OK, "image/svg+xml", svg),
            Err(failure) => answer::failure(&failure),
        }
    }

    /// Of the engine alone: jobs and workers are told by Redis, which may hang.
    async fn health(&self) -> Answer {
        let unhealthy = |reason: String| answer::text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"));
        match self.client.engine().await {
            Ok(EngineStatus { idle: None, .. }) => answer::text(StatusCode::OK, "an engine leads\n"),
            Ok(EngineStatus { idle: Some(idle), address, .. }) => {
                unhealthy(format!("no engine leads; {address}: {idle}"))
            }
            Err(error) => unhealthy(Failure::from(error).to_string()),
        }
    }

    async fn drawn_losses(&self, job: &JobId) -> Result<String, Failure> {
        // A job that is not there has no curve, either.
        let view = self.client.status(job).await?;
        let points = self.client.metrics(job, None).await?;
        let evaluations = self.client.evaluations(job, None).await?;
        let (name, job) = (job.to_string(), view.job);
        let training = Training { name, job, points, evaluations };
        Ok(loss_curves::of_trainings(&[training], Over::Samples))
    }
}

fn failed(error: impl Into<Failure>) -> Answer {
    answer::failure(&error.into())
}

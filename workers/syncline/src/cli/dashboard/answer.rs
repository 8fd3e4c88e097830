//! What a browser is answered.

use http_body_util::Full;
use hyper::{Response, StatusCode, body::Bytes, header};

use crate::cli::{Exit, Failure};

pub(super) type Answer = Response<Full<Bytes>>;

/// The page loads what comes from here and nothing else, runs no script that stands in a text, and is part of
/// no other page.
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// An answer of that type, of this moment only.
pub(super) fn of_type(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    answer.headers_mut().extend(headers.map(|(name, value)| (name, header::HeaderValue::from_static(value))));
    answer
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    of_type(status, "text/plain; charset=utf-8", body)
}

/// What a command prints with `--json`.
pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => of_type(StatusCode::OK, "application/json", body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// What a command prints with `--json` if it fails.
pub(super) fn failure(failure: &Failure) -> Answer {
    let status = match failure.exit() {
        Exit::Usage | Exit::JobFailed => StatusCode::NOT_FOUND,
        Exit::Unreachable | Exit::Redis => StatusCode::SERVICE_UNAVAILABLE,
        Exit::Ok | Exit::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    of_type(status, "application/json", failure.describe(true).unwrap_or_default())
}

//! What a request asks for.

use std::net::IpAddr;

use syncline_scheduler::ids::JobId;

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Route {
    Page,
    Script,
    Style,
    /// Whether an engine leads, for those who watch over processes.
    Health,
    /// For Prometheus.
    Metrics,
    /// The engine, the jobs and the workers.
    Cluster,
    /// A job with its workers, as `status --json`.
    Job(JobId),
    /// What happened to it, as `events --json`.
    Events(JobId),
    /// Its loss curve, as `metrics --plot`.
    LossCurve(JobId),
}

impl Route {
    /// `None`: there is no such thing.
    pub(super) fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let job = |id: &str| id.parse::<JobId>().ok();
        Some(match parts.as_slice() {
            [""] => Self::Page,
            ["page.js"] => Self::Script,
            ["page.css"] => Self::Style,
            ["healthz"] => Self::Health,
            ["metrics"] => Self::Metrics,
            ["api", "cluster"] => Self::Cluster,
            ["api", "jobs", id] => Self::Job(job(id)?),
            ["api", "jobs", id, "events"] => Self::Events(job(id)?),
            ["api", "jobs", id, "loss.svg"] => Self::LossCurve(job(id)?),
            _ => return None,
        })
    }
}

/// Whether a page that listens on `ip` may be asked for by that name. A page of this machine alone has a name of this machine:
/// the name of somebody else's site that leads here too (DNS rebinding) would let that site read the answers.
pub(super) fn is_ours(ip: IpAddr, host: Option<&str>) -> bool {
    let name = host.map(|host| match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    });
    !ip.is_loopback() || name.is_some_and(is_of_this_machine)
}

fn is_of_this_machine(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_what_it_names_or_nowhere() {
        let id = || "digits".parse::<JobId>().unwrap();
        #[rustfmt::skip]
        let cases = [
            ("/",                              Some(Route::Page)),
            ("/page.js",                       Some(Route::Script)),
            ("/metrics",                       Some(Route::Metrics)),
            ("/healthz",                       Some(Route::Health)),
            ("/api/cluster",                   Some(Route::Cluster)),
            ("/api/jobs/digits",               Some(Route::Job(id()))),
            ("/api/jobs/digits/events",        Some(Route::Events(id()))),
            ("/api/jobs/digits/loss.svg",      Some(Route::LossCurve(id()))),
            ("/api/jobs/sweep~3",              Some(Route::Job("sweep~3".parse().unwrap()))),
            ("",                               None),
            ("//",                             None),
            ("/api/jobs",                      None),
            ("/api/jobs/",                     None),
            ("/api/jobs/../../etc/passwd",     None),
            ("/api/jobs/%2e%2e",               None),
            ("/api/jobs/digits/loss.svg/more", None),
        ];
        for (path, route) in cases {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn a_page_of_this_machine_alone_is_not_read_under_the_name_of_a_foreign_site() {
        let (here, everywhere) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0]));
        for host in ["localhost", "LocalHost:8265", "127.0.0.1:8265", "[::1]:8265", "[::1]"] {
            assert!(is_ours(here, Some(host)), "{host}");
        }
        for host in ["evil.example:8265", "evil.example", "localhost.evil.example", "10.0.0.1", "", ":8265"] {
            assert!(!is_ours(here, Some(host)), "{host}");
            assert!(is_ours(everywhere, Some(host)), "{host}");
        }
        assert!(!is_ours(here, None));
    }
}

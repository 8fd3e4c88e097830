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

/// Whether a page that listens on `ip` may be asked for by that name: an address, or one of `names`, which
/// this machine has. The name of somebody else's site that leads here too (DNS rebinding) would let that site
/// read the answers. A page of this machine alone has an address of this machine alone. Who names nothing is
/// no browser.
pub(super) fn is_ours(ip: IpAddr, host: Option<&str>, names: &[String]) -> bool {
    let Some(host) = host else { return !ip.is_loopback() };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_address = address.parse().is_ok_and(|named: IpAddr| !ip.is_loopback() || named.is_loopback());
    is_address || names.iter().any(|own| own.eq_ignore_ascii_case(name))
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
    fn a_page_is_not_read_under_the_name_of_a_foreign_site() {
        let (here, everywhere) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0]));
        let names = ["localhost".to_owned(), "node1.example".to_owned()];
        #[rustfmt::skip]
        let cases = [
            // asked for as, of this machine alone, of all addresses
            (Some("localhost"),              true,  true),
            (Some("LocalHost:8265"),         true,  true),
            (Some("127.0.0.1:8265"),         true,  true),
            (Some("[::1]:8265"),             true,  true),
            (Some("[::1]"),                  true,  true),
            (Some("10.0.0.1:8265"),          false, true),
            (Some("Node1.example:8265"),     true,  true),
            (Some("evil.example:8265"),      false, false),
            (Some("evil.example"),           false, false),
            (Some("localhost.evil.example"), false, false),
            (Some(""),                       false, false),
            (Some(":8265"),                  false, false),
            (None,                           false, true),
        ];
        for (host, of_this_machine, of_all) in cases {
            let found = (is_ours(here, host, &names), is_ours(everywhere, host, &names));
            assert_eq!(found, (of_this_machine, of_all), "{host:?}");
        }
    }
}

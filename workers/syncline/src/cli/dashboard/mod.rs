//! `syncline dashboard`: what happens in a cluster as a page in the browser, and as metrics for Prometheus.
//! It only reads.
//!
//! ```text
//! browser, Prometheus ──HTTP──> server ──> site ──> route: what is asked for
//!                                          │
//!                                          └─────> overview ──tarpc──> the engine that leads
//! ```

mod answer;
mod connections;
mod fresh;
mod job_answers;
mod overview;
mod prometheus;
mod route;
mod server;
mod site;

use std::net::SocketAddr;

use syncline_rpc::hostname;
use syncline_workers::client::Client;
use tokio::net::TcpListener;

use crate::cli::{
    CliError, ConnectionArgs, Failure, block_on_one_thread, listen_for_stop, log_as_command, print, say,
};

#[derive(Debug, clap::Args)]
pub struct DashboardArgs {
    /// IP address and port to serve the page on; port 0 takes a free one. Whoever can reach it may look on,
    /// without a token
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8265")]
    listen: SocketAddr,
    /// A further name by which browsers ask for the page; may be given several times. Addresses, localhost
    /// and the name of this machine need none
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) fn run(args: &DashboardArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on_one_thread(async {
        let mut stop = listen_for_stop(false)?;
        // A wrong address or token is told now, and not to each who looks on.
        let (client, _) = Client::connect(&cluster).await?;
        let cannot = |source| CliError::Listen { address: args.listen, source };
        let listener = TcpListener::bind(args.listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        print(&format!("dashboard http://{address}/"))?;
        say(&format!("metrics for Prometheus: http://{address}/metrics; Ctrl-C ends it"));
        if !address.ip().is_loopback() {
            say(
                "whoever can reach that address sees jobs, losses and names of machines; nothing can be changed through it",
            );
        }
        let names = args.host.iter().cloned().chain(hostname()).chain(["localhost".to_owned()]).collect();
        tokio::select! {
            never = server::serve(&listener, site::Site::new(client, address, names)) => match never {},
            () = stop.requested() => Ok(()),
        }
    })
}

//! An engine of which a test says what it answers.

use std::{io, net::Ipv4Addr};

use syncline_rpc::{
    ClientServiceRequest, ClientServiceResponse, Token, accept, answer_calls, channel, hello::Role,
};
use tarpc::{
    ServerError,
    server::{self, Channel},
};
use tokio::net::TcpListener;

use super::Client;

/// A client of an engine that answers so, and with an error where there is no answer.
pub(super) async fn start(
    answer: impl Fn(ClientServiceRequest) -> Option<ClientServiceResponse> + Clone + Send + Sync + 'static,
) -> Client {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, token) = (listener.local_addr().unwrap().to_string(), Token::generate());
    let respond = move |_, request| {
        let unknown = || ServerError::new(io::ErrorKind::Unsupported, "the test has no answer".into());
        let answered = answer(request).ok_or_else(unknown);
        async move { answered }
    };
    let serve = move |_, stream| answer_calls(channel(stream).execute(server::serve(respond.clone())));
    tokio::spawn(accept(listener, token.clone(), &[Role::Client], serve));
    Client::new(address.parse::<syncline_rpc::EngineAddresses>().unwrap(), token)
}

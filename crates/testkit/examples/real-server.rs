//! One real server for a chore that is no Rust test: `real-server rabbitmq|postgres|mariadb`. It
//! prints the server's URL, then obeys an order a line from stdin and ends each answer with `done`:
//! `kill` (SIGKILL), `start` (on the same files and port), `sql TEXT`. It ends with its stdin.

use std::io::BufRead;

use testkit::servers::{MariaDb, Postgres, Rabbitmq};

/// The database of both SQL servers.
const DATABASE: &str = "campaign";

enum Server {
    Rabbitmq(Rabbitmq),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Server {
    fn start(kind: &str) -> Self {
        match kind {
            "rabbitmq" => Self::Rabbitmq(Rabbitmq::start("")),
            "postgres" => {
                let server = Postgres::start();
                server.database(DATABASE);
                Self::Postgres(server)
            }
            "mariadb" => {
                let server = MariaDb::start();
                server.run(&format!("create database {DATABASE}"));
                Self::MariaDb(server)
            }
            other => panic!("there is no server `{other}`"),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Rabbitmq(server) => server.url(),
            Self::Postgres(server) => server.url(DATABASE),
            Self::MariaDb(server) => server.url(DATABASE),
        }
    }

    fn obey(&mut self, order: &str) {
        let (verb, text) = order.split_once(' ').unwrap_or((order, ""));
        match (verb, self) {
            ("kill", Self::Rabbitmq(server)) => server.kill(),
            ("kill", Self::Postgres(server)) => server.kill(),
            ("kill", Self::MariaDb(server)) => server.kill(),
            ("start", Self::Rabbitmq(server)) => server.go_on(),
            ("start", Self::Postgres(server)) => server.restart(),
            ("start", Self::MariaDb(server)) => server.go_on(),
            ("sql", Self::Postgres(server)) => println!("{}", server.sql(DATABASE, text)),
            ("sql", Self::MariaDb(server)) => {
                println!("{}", server.run(&format!("use {DATABASE}; {text}")));
            }
            _ => panic!("no such order: {order}"),
        }
    }
}

fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let mut server = Server::start(&kind);
    println!("{}\ndone", server.url());
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        server.obey(&order);
        println!("done");
    }
}

//! Handshakes over real sockets, with certificates made on the spot.

use std::future::poll_fn;
use std::io;
use std::time::SystemTime;

use testkit::{Authority, Issued};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Connection;

fn identity(issued: &Issued) -> Identity {
    let now = SystemTime::now();
    Identity::from_pem(issued.cert.as_bytes(), issued.key.as_bytes(), now).unwrap()
}

fn roots(authority: &Authority) -> Roots {
    Roots::from_pem(authority.pem().as_bytes()).unwrap()
}

fn server(identities: Vec<Identity>) -> ServerSettings {
    ServerSettings {
        identities,
        client_auth: ClientAuth::None,
        revoked: RevocationLists::default(),
        protocols: vec![Protocol::Http2, Protocol::Http1],
        min_version: MinVersion::Tls12,
    }
}

fn client(trust: Trust) -> ClientSettings {
    ClientSettings {
        trust,
        identity: None,
        protocols: vec![Protocol::Http1],
        min_version: MinVersion::Tls12,
    }
}

/// Both ends of a connection after their handshakes.
async fn connect(server: &Server, client: &Client) -> [io::Result<Connection>; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, stream) = tokio::join!(listener.accept(), TcpStream::connect(address));
    let (accepted, peer) = accepted.unwrap();
    let ours = Connection::accept_tls(accepted, peer, server).unwrap();
    let theirs = Connection::begin_tls(stream.unwrap(), address, client).unwrap();
    let (ours, theirs) = tokio::join!(shake(ours), shake(theirs));
    [ours, theirs]
}

/// A handshake, and a byte there and back: with TLS 1.3 a client learns only then that its
/// certificate is refused.
async fn shake(mut connection: Connection) -> io::Result<Connection> {
    poll_fn(|context| connection.poll_handshake(context)).await?;
    poll_fn(|context| connection.poll_write(context, b"x")).await?;
    let count = poll_fn(|context| connection.poll_fill(context)).await?;
    assert_eq!(connection.input.bytes(), b"x");
    connection.input.consume(count);
    Ok(connection)
}

async fn outcome(server: ServerSettings, client: ClientSettings, name: &str) -> [bool; 2] {
    let server = Server::new(server).unwrap();
    let client = Client::new(name, client).unwrap();
    connect(&server, &client).await.map(|side| side.is_ok())
}

fn pin(issued: &Issued) -> Pin {
    let issued = identity(issued);
    let key = identity::Facts::read(&issued.certified.cert[0])
        .unwrap()
        .public_key;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &key);
    Pin(hash.as_ref().try_into().unwrap())
}

#[test]
fn files_that_cannot_be_used_are_told() {
    let authority = Authority::new("test");
    let (good, other) = (authority.issue(&["a"]), authority.issue(&["a"]));
    let (expired, future) = (
        authority.issue_expired(&["a"]),
        authority.issue_future(&["a"]),
    );
    let cases = [
        (
            &*good.cert,
            &*other.key,
            "the key does not belong to the certificate",
        ),
        (&expired.cert, &expired.key, "the certificate has expired"),
        (
            &future.cert,
            &future.key,
            "the certificate begins to hold only in",
        ),
        ("", &good.key, "there is no certificate in the file"),
        ("x", &good.key, "there is no certificate in the file"),
        (&good.cert, "", "there is no private key in the file"),
        (
            &good.cert,
            &good.cert,
            "there is no private key in the file",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &good.key,
            "the certificate cannot be read",
        ),
        (
            &good.cert,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "the key is encrypted with a pass phrase",
        ),
        (
            &good.cert,
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "the key cannot be used",
        ),
    ];
    for (cert, key, expected) in cases {
        let found = Identity::from_pem(cert.as_bytes(), key.as_bytes(), SystemTime::now());
        let message = found.unwrap_err().message;
        assert!(message.starts_with(expected), "{message}");
    }
    let no_roots = Roots::from_pem(good.key.as_bytes()).unwrap_err();
    assert_eq!(no_roots.message, "there is no certificate in the file");
}

#[test]
fn names_with_a_star_stand_for_one_label() {
    let issued = Authority::new("test").issue(&["a.example", "*.b.example", "127.0.0.1"]);
    let identity = identity(&issued);
    assert_eq!(identity.names(), ["a.example", "*.b.example", "127.0.0.1"]);
    for name in ["A.example", "x.b.example", "127.0.0.1"] {
        assert!(identity.is_for(name), "{name}");
    }
    for name in ["b.example", "x.y.b.example", "x.a.example", ".b.example"] {
        assert!(!identity.is_for(name), "{name}");
    }
}

#[tokio::test]
async fn both_sides_agree_on_a_protocol() {
    let authority = Authority::new("test");
    let issued = authority.issue(&["localhost"]);
    let server = Server::new(server(vec![identity(&issued)])).unwrap();
    for (offered, expected) in [
        (vec![Protocol::Http1], Some(Protocol::Http1)),
        (
            vec![Protocol::Http1, Protocol::Http2],
            Some(Protocol::Http2),
        ),
        (Vec::new(), None),
    ] {
        let mut settings = client(Trust::Chain(roots(&authority), Vec::new()));
        settings.protocols = offered;
        let client = Client::new("localhost", settings).unwrap();
        for side in connect(&server, &client).await {
            assert_eq!(side.unwrap().protocol(), expected);
        }
    }
}

#[tokio::test]
async fn sessions_are_taken_up_again() {
    let authority = Authority::new("test");
    let issued = authority.issue(&["localhost"]);
    let server = Server::new(server(vec![identity(&issued)])).unwrap();
    let trust = client(Trust::Chain(roots(&authority), Vec::new()));
    let client = Client::new("localhost", trust).unwrap();
    for expected in [false, true, true] {
        for side in connect(&server, &client).await {
            assert_eq!(side.unwrap().is_resumed(), expected);
        }
    }
}

#[tokio::test]
async fn the_certificate_is_that_of_the_name() {
    let authority = Authority::new("test");
    let issued = ["one.example", "two.example"].map(|name| authority.issue(&[name]));
    let both = || issued.iter().map(identity).collect();
    let trust = || client(Trust::Chain(roots(&authority), Vec::new()));
    for name in ["one.example", "two.example"] {
        assert_eq!(outcome(server(both()), trust(), name).await, [true, true]);
    }
    // Another name gets the first certificate, which is not for it.
    assert!(!outcome(server(both()), trust(), "three.example").await[1]);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new("test"), Authority::new("other"));
    let issued = authority.issue(&["localhost"]);
    let trust = client(Trust::Chain(roots(&other), Vec::new()));
    let found = outcome(server(vec![identity(&issued)]), trust, "localhost").await;
    assert_eq!(found, [false, false]);
}

#[tokio::test]
async fn pins_are_checked_beside_the_chain_or_alone() {
    let authority = Authority::new("test");
    let (issued, other) = (authority.issue(&["localhost"]), authority.issue(&["x"]));
    let chain = |pins| Trust::Chain(roots(&authority), pins);
    let cases = [
        (chain(vec![pin(&other), pin(&issued)]), "localhost", true),
        (chain(vec![pin(&other)]), "localhost", false),
        (chain(vec![pin(&issued)]), "another", false),
        (Trust::Pinned(vec![pin(&issued)]), "another", true),
        (Trust::Pinned(vec![pin(&other)]), "localhost", false),
    ];
    for (trust, name, fits) in cases {
        let found = outcome(server(vec![identity(&issued)]), client(trust), name).await;
        assert_eq!(found[1], fits, "{name}");
    }
}

#[tokio::test]
async fn clients_show_certificates_when_they_must() {
    let authority = Authority::new("test");
    let (issued, stranger) = (
        authority.issue(&["localhost"]),
        Authority::new("other").issue(&["me"]),
    );
    let required = || ClientAuth::Required(roots(&authority));
    let optional = || ClientAuth::Optional(roots(&authority));
    let own = Some(identity(&authority.issue(&["me"])));
    let foreign = Some(identity(&stranger));
    let cases = [
        (required(), own.clone(), true),
        (required(), None, false),
        (required(), foreign.clone(), false),
        (optional(), own, true),
        (optional(), None, true),
        (optional(), foreign, false),
    ];
    for (client_auth, identity_shown, fits) in cases {
        let mut server = server(vec![identity(&issued)]);
        server.client_auth = client_auth;
        let mut client = client(Trust::Chain(roots(&authority), Vec::new()));
        client.identity = identity_shown;
        assert_eq!(outcome(server, client, "localhost").await[0], fits);
    }
}

#[tokio::test]
async fn large_writes_come_whole_and_the_end_is_told() {
    let authority = Authority::new("test");
    let issued = authority.issue(&["localhost"]);
    let server = Server::new(server(vec![identity(&issued)])).unwrap();
    let trust = client(Trust::Chain(roots(&authority), Vec::new()));
    let client = Client::new("localhost", trust).unwrap();
    let [ours, theirs] = connect(&server, &client).await;
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let write = async {
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let count = poll_fn(|context| ours.poll_write(context, rest)).await;
            rest = &rest[count.unwrap()..];
        }
        poll_fn(|context| ours.poll_finish(context)).await.unwrap();
    };
    let read = async {
        let mut received = Vec::new();
        loop {
            match poll_fn(|context| theirs.poll_fill(context)).await.unwrap() {
                0 => return received,
                count => {
                    received.extend_from_slice(theirs.input.bytes());
                    theirs.input.consume(count);
                }
            }
        }
    };
    let ((), received) = tokio::join!(write, read);
    assert!(received == sent);
}

#[tokio::test]
async fn an_end_that_was_not_told_is_an_error() {
    let authority = Authority::new("test");
    let issued = authority.issue(&["localhost"]);
    let server = Server::new(server(vec![identity(&issued)])).unwrap();
    let trust = client(Trust::Chain(roots(&authority), Vec::new()));
    let client = Client::new("localhost", trust).unwrap();
    let [ours, theirs] = connect(&server, &client).await;
    let mut theirs = theirs.unwrap();
    assert!(!theirs.is_stale());
    drop(ours.unwrap());
    let end = poll_fn(|context| theirs.poll_fill(context)).await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(theirs.is_stale());
}

#[test]
fn only_what_is_asked_of_clients_tells_servers_apart() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let issued = one.issue(&["localhost"]);
    let make = |client_auth, min_version| {
        let settings = ServerSettings {
            client_auth,
            min_version,
            ..server(vec![identity(&issued)])
        };
        Server::new(settings).unwrap()
    };
    let (tls12, tls13) = (MinVersion::Tls12, MinVersion::Tls13);
    let open = make(ClientAuth::None, tls12);
    let renewed = Server::new(server(vec![identity(&two.issue(&["localhost"]))])).unwrap();
    assert!(open.admits_like(&renewed));
    let strict = make(ClientAuth::Required(roots(&one)), tls12);
    assert!(strict.admits_like(&make(ClientAuth::Required(roots(&one)), tls12)));
    let others = [
        make(ClientAuth::None, tls12),
        make(ClientAuth::Optional(roots(&one)), tls12),
        make(ClientAuth::Required(roots(&two)), tls12),
        make(ClientAuth::Required(roots(&one)), tls13),
    ];
    assert!(others.iter().all(|other| !strict.admits_like(other)));
}

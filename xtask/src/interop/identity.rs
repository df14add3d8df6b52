//! Real OpenID providers, npm's oidc-provider and Keycloak: browsers log in by way of the engine
//! and out again, keys rotate, sessions end by the provider's word, opaque tokens are introspected.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bench::Bench;
use super::process::{Process, free_port, wait_for};
use super::report::Report;
use super::run::run;
use super::{scripts, tools};
use crate::command::{Failure, program, target};

/// The version of Keycloak.
const KEYCLOAK: &str = "26.0.7";
/// How long Keycloak may take until it answers: it builds itself first.
const KEYCLOAK_START: Duration = Duration::from_secs(240);
/// How long one script may run.
const SECONDS: u32 = 300;

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("identity", Ok("not asked: it has none".to_owned()));
    }
    let providers: [(&str, Start); 2] = [("oidc-provider", npm), ("keycloak", keycloak)];
    for (kind, start) in providers {
        let name = format!("identity {kind}");
        if let Err(failure) = play(bench, kind, start, report) {
            report.add(&name, Err(failure));
        }
    }
}

/// Starts a provider that knows the engine's port and the file of the client's key; gives its
/// issuer and its introspection endpoint.
type Start = fn(&Scene<'_>) -> Result<(Process, String, String), Failure>;

struct Scene<'a> {
    bench: &'a Bench,
    folder: PathBuf,
    engine: u16,
    key: PathBuf,
}

fn play(bench: &Bench, kind: &str, start: Start, report: &mut Report) -> Result<(), Failure> {
    let folder = bench.folder.join(format!("identity-{kind}"));
    fs::create_dir(&folder)?;
    let scene = Scene {
        bench,
        engine: free_port()?,
        key: folder.join("client.pem"),
        folder,
    };
    let (provider, issuer, introspection) = start(&scene)?;
    fs::write(
        scene.folder.join("identity.yaml"),
        flows(scene.engine, &issuer, &introspection),
    )?;
    let engine = scene.engine()?;
    let script = bench.script("identity_client.mjs");
    let port = scene.engine.to_string();
    let words = [&*script.to_string_lossy(), kind, &issuer, &port].map(str::to_owned);
    let ran = run(SECONDS, "node", words)?;
    let before = report.failed;
    scripts::lines(report, &format!("identity {kind}"), &ran);
    if report.failed > before {
        let tail = |process: &Process| {
            let text = process.printed();
            let lines: Vec<&str> = text.lines().collect();
            let shown = lines.get(lines.len().saturating_sub(40)..);
            shown.unwrap_or_default().join("\n")
        };
        eprintln!("engine:\n{}\n{kind}:\n{}", tail(&engine), tail(&provider));
    }
    Ok(())
}

impl Scene<'_> {
    fn engine(&self) -> Result<Process, Failure> {
        let mut command = Command::new(&self.bench.program);
        command
            .args([
                "run",
                "identity.yaml",
                "--workers",
                "2",
                "--data",
                "data",
                "--admin",
                "off",
            ])
            .env("INTERTIE_LOG", "info,auth=debug")
            .current_dir(&self.folder);
        let mut engine = Process::start(&self.folder, "engine", command)?;
        engine.listens(self.engine)?;
        Ok(engine)
    }

    fn words(&self, script: &str, more: &[&str]) -> Vec<String> {
        let script = self.bench.script(script).to_string_lossy().into_owned();
        let more = more.iter().map(|it| (*it).to_owned());
        std::iter::once(script).chain(more).collect()
    }
}

fn npm(scene: &Scene<'_>) -> Result<(Process, String, String), Failure> {
    let packages = tools::node(&scene.bench.root)?;
    let port = free_port()?;
    let (own, engine) = (port.to_string(), scene.engine.to_string());
    let (packages, key) = (packages.to_string_lossy(), scene.key.to_string_lossy());
    let mut command = Command::new("node");
    command.args(scene.words("identity_provider.mjs", &[&packages, &own, &engine, &key]));
    let mut provider = Process::start(&scene.folder, "provider", command)?;
    provider.listens(port)?;
    let issuer = format!("http://127.0.0.1:{port}");
    let introspection = format!("{issuer}/token/introspection");
    Ok((provider, issuer, introspection))
}

fn keycloak(scene: &Scene<'_>) -> Result<(Process, String, String), Failure> {
    let home = keycloak_home(&scene.bench.root, &scene.folder)?;
    let import = home.join("data/import");
    fs::create_dir_all(&import)?;
    let realm = import.join("shop.json");
    let (engine, key) = (scene.engine.to_string(), scene.key.to_string_lossy());
    let words = scene.words(
        "identity_realm.mjs",
        &[&engine, &realm.to_string_lossy(), &key],
    );
    let ran = run(SECONDS, "node", words)?;
    if !ran.succeeded {
        return Err(ran.failure("the realm cannot be written"));
    }
    let (port, management) = (free_port()?, free_port()?);
    let mut command = Command::new(home.join("bin/kc.sh"));
    command
        .args(["start-dev", "--import-realm", "--http-host=127.0.0.1"])
        .arg(format!("--http-port={port}"))
        .arg(format!("--http-management-port={management}"))
        .envs([
            ("KC_BOOTSTRAP_ADMIN_USERNAME", "admin"),
            ("KC_BOOTSTRAP_ADMIN_PASSWORD", "admin"),
            ("JAVA_OPTS_KC_HEAP", "-Xms64m -Xmx700m"),
        ]);
    let mut provider = Process::start(&scene.folder, "provider", command)?;
    let listens = wait_for(KEYCLOAK_START, || {
        let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
        let is_over = listens || provider.ended()?.is_some();
        Ok(is_over.then_some(listens))
    })?;
    if listens != Some(true) {
        let printed = provider.printed();
        return Err(Failure::new(format!(
            "Keycloak does not listen:\n{printed}"
        )));
    }
    let issuer = format!("http://127.0.0.1:{port}/realms/shop");
    let introspection = format!("{issuer}/protocol/openid-connect/token/introspect");
    Ok((provider, issuer, introspection))
}

/// Keycloak in a folder of this run. The archive of Maven Central stays in the target folder.
fn keycloak_home(root: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let kept = target(root)?.join("interop/keycloak");
    let archive = kept.join(format!("keycloak-quarkus-dist-{KEYCLOAK}.zip"));
    if !archive.is_file() {
        let artifact = format!("-Dartifact=org.keycloak:keycloak-quarkus-dist:{KEYCLOAK}:zip");
        let output = format!("-DoutputDirectory={}", kept.display());
        let copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";
        program("mvn")
            .args(["-q", "-B", copy, &artifact, &output])
            .run()?;
    }
    let words = [archive.as_path(), Path::new("-d"), folder].map(Path::as_os_str);
    let quiet = std::iter::once("-q".as_ref());
    program("unzip").args(quiet.chain(words)).run()?;
    Ok(folder.join(format!("keycloak-{KEYCLOAK}")))
}

fn flows(port: u16, issuer: &str, introspection: &str) -> String {
    let clients = [
        ("secret", "client_secret: \"hush: & co\""),
        (
            "signed",
            "private_key: { file: client.pem, algorithm: ES256 }",
        ),
        ("public", "idle: 30m"),
    ];
    let way = |(name, auth): &(&str, &str)| {
        format!(
            "    {name}: {{ oidc: {{ issuer: \"{issuer}\", client_id: {name}, {auth}, public_url: \
             \"http://localhost:{port}\", callback: /{name}/callback, logout: /{name}/logout, \
             signed_out: /bye, backchannel_logout: /{name}/backchannel }} }}\n"
        )
    };
    let flow = |(name, _): &(&str, &str)| {
        format!(
            "---\nflow: {name}\nfrom: {{ http: \"GET,POST :{port}/{name}/page\" }}\nauth: {name}\n\
             steps:\n  - map: \"{{ auth: $auth, cookie: $headers.cookie }}\"\n  - reply: {{}}\n"
        )
    };
    let ways: String = clients.iter().map(way).collect();
    let flows: String = clients.iter().map(flow).collect();
    let opaque = format!(
        "    opaque: {{ introspect: {{ url: \"{introspection}\", client_id: secret, client_secret: \
         \"hush: & co\", check: 1s }} }}\n"
    );
    let others = format!(
        "---\nflow: opaque\nfrom: {{ http: \"GET :{port}/opaque\" }}\nauth: opaque\n\
         steps: [ map: $auth, reply: {{}} ]\n\
         ---\nflow: bye\nfrom: {{ http: \"GET :{port}/bye\" }}\n\
         steps: [ reply: {{ body: bye }} ]\n"
    );
    format!("engine:\n  auth:\n{ways}{opaque}{flows}{others}")
}

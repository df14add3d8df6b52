//! Real programs on both sides: curl in front, nginx behind.

use std::process::Command;

use testkit::servers::Nginx;
use testkit::{TempDir, free_port};

use crate::support::Engine;

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10"])
        .args(arguments)
        .output()
        .expect("curl is missing: `cargo xtask test` installs it");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_reaches_nginx_through_us() {
    let nginx = Nginx::start(
        "location /old { return 301 /new; } location /chunked { gzip on; gzip_min_length 1; \
         gzip_types text/plain; } client_max_body_size 0; location /upload { \
         proxy_pass http://127.0.0.1:1; error_page 502 =200 /index.html; }",
    );
    let large: String = (0..200_000).map(|at| format!("line {at}\n")).collect();
    nginx.write("large.txt", &large);
    nginx.write("chunked/text.txt", &large);
    let folder = TempDir::new();
    let port = free_port();
    folder.write(
        "flow.yaml",
        &format!(
            "flow: site\nfrom: {{ http: any 127.0.0.1:{port}/* }}\nsteps:\n  \
             - forward: http://localhost:{}/\n",
            nginx.port()
        ),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    assert_eq!(curl(&[&url("/")]), "hello from nginx\n");
    assert!(
        curl(&[&url("/large.txt")]) == large,
        "a large file comes whole"
    );
    assert!(
        curl(&["--compressed", &url("/chunked/text.txt")]) == large,
        "so do chunks"
    );
    assert_eq!(curl(&["--range", "5-10", &url("/large.txt")]), large[5..11]);
    assert!(curl(&["--head", &url("/large.txt")]).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(curl(&["--include", &url("/old")]).starts_with("HTTP/1.1 301 Moved"));
    assert!(curl(&["--include", &url("/none")]).starts_with("HTTP/1.1 404 Not Found"));
    let tag = curl(&["--head", &url("/large.txt")]);
    let tag = tag
        .lines()
        .find_map(|line| line.strip_prefix("ETag: "))
        .unwrap();
    let header = format!("If-None-Match: {tag}");
    let cached = curl(&["--include", "--header", &header, &url("/large.txt")]);
    assert!(cached.starts_with("HTTP/1.1 304 Not Modified\r\n"));
    // One connection for many, and bodies that curl sends in chunks after `100 Continue`.
    let many: Vec<String> = (0..50).map(|_| url("/")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(curl(&many), "hello from nginx\n".repeat(50));
    let body = folder.write("body.txt", &large);
    let body = format!("@{}", body.display());
    let chunked = [
        "--header",
        "Transfer-Encoding: chunked",
        "--data-binary",
        &body,
    ];
    let reply = curl(
        &[
            &chunked[..],
            &["--header", "Expect: 100-continue", &url("/upload")],
        ]
        .concat(),
    );
    assert_eq!(reply, "hello from nginx\n");
    engine.stop();
}

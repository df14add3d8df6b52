//! Reloads that fail because of the admin port: everything stays as it was, and the audit log has
//! them.

use std::net::TcpListener;
use std::path::Path;

use testkit::{Response, free_port};

use super::{FILE, Site, send};
use crate::support::{Engine, library};

/// Nobody can listen on the port that stands in the file `$BUSY`, as long as that is there: another
/// process was faster, after both had bound it.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int listen(int fd, int backlog) {
  char *name = getenv("BUSY"); FILE *file = name ? fopen(name, "r") : 0;
  int port = 0; struct sockaddr_in own; socklen_t size = sizeof own;
  if (file) { if (fscanf(file, "%d", &port) != 1) port = 0; fclose(file); }
  if (port && !getsockname(fd, (struct sockaddr *)&own, &size) && ntohs(own.sin_port) == port) {
    errno = EADDRINUSE; return -1;
  }
  return syscall(SYS_listen, fd, backlog);
}
"#;

/// A site with the admin port in the files, and an engine that takes it from there.
struct Admin {
    site: Site,
    port: u16,
}

impl Admin {
    fn new() -> Self {
        let (site, port) = (Site::new(), free_port());
        let admin = Self { site, port };
        admin.write(port, "ok", None);
        admin
    }

    /// The files: where the admin port is, what `/orders` replies, and another address.
    fn write(&self, admin: u16, reply: &str, other: Option<u16>) {
        let file = self.site.write(FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.replace(
            "admin: { operate: none }",
            &format!("admin: {{ listen: '127.0.0.1:{admin}', operate: none }}"),
        );
        let text = text.replace(
            "reply: { body: ok }",
            &format!("reply: {{ body: {reply} }}"),
        );
        let more = other.map(|port| {
            format!(
                "---\nflow: other\nfrom: {{ http: 'GET 127.0.0.1:{port}/' }}\n\
                 steps: [ reply: {{}} ]\n"
            )
        });
        let text = text.replace("auth: partners\n", "auth: none\n") + &more.unwrap_or_default();
        self.site.folder.write("flows.yaml", &text);
    }

    fn run(&self, variables: &[(&str, &str)]) -> Engine {
        let file = self.site.folder.path().join("flows.yaml");
        Engine::run_by_file(&[&file], self.port, variables)
    }

    fn reload(&self) -> Response {
        send(self.port, ("POST", "/reload"), "", "")
    }

    fn body(&self) -> String {
        self.site.ask("/orders/1", "").text()
    }

    /// Checks that a reload was refused and has changed nothing.
    fn is_as_before(&self, other: u16) {
        let refused = self.reload();
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert_eq!(self.body(), "ok");
        assert!(TcpListener::bind(("127.0.0.1", other)).is_ok());
        let told = |kind: &str| self.site.wait(kind, |it| it["outcome"] == "failure");
        assert_eq!(told("config.reload")["trigger"], "admin");
        let asked = told("admin.reload");
        assert_eq!(
            (&asked["status"], &asked["source"]["address"]),
            (&409.into(), &"127.0.0.1".into())
        );
        assert_eq!(send(self.port, ("GET", "/ready"), "", "").status, 200);
    }

    /// Checks that the files are taken now, and that the port has moved.
    fn moves(self, to: u16, engine: Engine) {
        assert_eq!(self.reload().status, 200);
        assert_eq!(self.body(), "new");
        assert_eq!(send(to, ("GET", "/ready"), "", "").status, 200);
        self.site
            .wait("config.reload", |it| it["outcome"] == "success");
        let all = self.site.events();
        let outcomes: Vec<_> = all
            .iter()
            .filter(|it| it["event"] == "config.reload")
            .map(|it| it["outcome"].as_str().unwrap())
            .collect();
        assert_eq!(outcomes, ["failure", "success"]);
        engine.stop();
    }
}

#[test]
fn a_reload_whose_admin_port_is_taken_changes_nothing_and_is_told() {
    let (admin, other) = (Admin::new(), free_port());
    let engine = admin.run(&[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = taken.local_addr().unwrap().port();
    admin.write(to, "new", Some(other));
    admin.is_as_before(other);
    drop(taken);
    admin.moves(to, engine);
}

#[test]
fn a_reload_whose_admin_port_is_taken_at_the_last_moment_changes_nothing_and_is_told() {
    let (admin, other) = (Admin::new(), free_port());
    let library = library(&admin.site.folder, SHIM);
    let busy = admin.site.folder.path().join("busy");
    let text = |path: &Path| path.display().to_string();
    let variables = [("LD_PRELOAD", text(&library)), ("BUSY", text(&busy))];
    let variables = variables.each_ref().map(|it| (it.0, it.1.as_str()));
    let engine = admin.run(&variables);
    let to = free_port();
    admin.site.folder.write("busy", &to.to_string());
    admin.write(to, "new", Some(other));
    admin.is_as_before(other);
    std::fs::remove_file(&busy).unwrap();
    admin.moves(to, engine);
}

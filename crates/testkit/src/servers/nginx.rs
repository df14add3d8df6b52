//! nginx.

use std::process::Command;

use crate::process::{Process, TempDir, free_port};
use crate::servers::find;

/// A real nginx.
pub struct Nginx {
    port: u16,
    folder: TempDir,
    _process: Process,
}

impl Nginx {
    /// Starts nginx with these lines in its server block. Its document root is a temporary folder.
    pub fn start(server: &str) -> Self {
        let folder = TempDir::new();
        let port = free_port();
        let path = folder.path().display();
        // One process: workers of a master that is killed would live on.
        let text = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr warn;
             events {{ worker_connections 512; }}
             http {{
               access_log off; default_type text/plain;
               client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
               fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi;
               scgi_temp_path {path}/scgi;
               server {{ listen 127.0.0.1:{port}; root {path}/www; {server} }}
             }}"
        );
        let config = folder.write("nginx.conf", &text);
        folder.write("www/index.html", "hello from nginx\n");
        let binary = find("nginx")
            .expect("nginx is missing: `cargo xtask test` installs it (package nginx-light)");
        let mut process = Process::start(Command::new(binary).arg("-c").arg(config));
        process.wait_for_port(port);
        Self {
            port,
            folder,
            _process: process,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Writes a file below its document root.
    pub fn write(&self, name: &str, text: &str) {
        self.folder.write(&format!("www/{name}"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RawClient;

    #[test]
    fn nginx_serves_and_leaves_nothing_behind() {
        let nginx = Nginx::start("location /down { return 503; }");
        let mut client = RawClient::connect(nginx.port());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /down HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "hello from nginx\n");
        assert_eq!(client.response().status, 503);
        let port = nginx.port();
        drop(nginx);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

//! Real servers on free ports with temporary folders.

use std::process::Command;

use crate::process::{Process, TempDir, free_port};

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
        let user = if is_root() { "user root;" } else { "" };
        let text = format!(
            "daemon off; {user} pid {path}/pid; error_log stderr warn; worker_processes 1;
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
        let binary = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
            .into_iter()
            .find(|path| std::path::Path::new(path).is_file())
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

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

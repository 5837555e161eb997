//! A mirror whose source hangs can be stopped.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

#[test]
fn a_stop_while_the_source_hangs_at_the_start_is_clean() {
    let dir = std::env::temp_dir().join(format!("heliostat-signals-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let meta = "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=dEfAuLtDiReCtOrYIdXXXX\n\
                mirror.source.cluster.id=source-1\n";
    fs::write(dir.join("meta.properties"), meta).unwrap();
    let marker = dir.join(".kafka_cleanshutdown");
    fs::write(&marker, "").unwrap();

    let source = TcpListener::bind("127.0.0.1:0").unwrap();
    for signal in ["-INT", "-TERM"] {
        let mut mirror = Command::new(env!("CARGO_BIN_EXE_heliostat"))
            .args(["mirror", "--topics", "t", "--source"])
            .arg(source.local_addr().unwrap().to_string())
            .arg("--to")
            .arg(&dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It asks, and nobody answers.
        let held = source.accept().unwrap();
        let killed = Command::new("kill").arg(signal).arg(mirror.id().to_string()).status();
        assert!(killed.unwrap().success());
        assert_eq!(mirror.wait().unwrap().code(), Some(0), "{signal}");
        assert!(marker.exists(), "nothing was opened, so the last clean stop still holds");
        drop(held);
    }
    fs::remove_dir_all(&dir).unwrap();
}

//! TCP settings that bound a mirror over a long distance.

use super::{Fact, Verdict, line_of, size};

/// What one connection needs for 1 Gbit/s over 80 ms, in bytes, with the kernel's
/// share for its own bookkeeping.
const WINDOW_BYTES_GOOD: u64 = 16 << 20;

const TCP_RMEM: &str = "/proc/sys/net/ipv4/tcp_rmem";
const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

pub(super) fn facts() -> Vec<Fact> {
    vec![
        judge_tcp_rmem(line_of(TCP_RMEM).as_deref()),
        judge_rmem_max(line_of(RMEM_MAX).as_deref()),
        judge_congestion(line_of(CONGESTION).as_deref()),
    ]
}

fn unknown(name: &'static str, path: &str) -> Fact {
    Fact::new(name, "unknown", Verdict::Warn)
        .meaning(format!("{path} cannot be read"))
        .remedy("mount /proc, or look at the setting by hand")
}

fn judge_tcp_rmem(text: Option<&str>) -> Fact {
    const NAME: &str = "net.ipv4.tcp_rmem";
    let max = text.and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
    let Some(max) = max else { return unknown(NAME, TCP_RMEM) };
    let verdict = if max >= WINDOW_BYTES_GOOD { Verdict::Ok } else { Verdict::Warn };
    // Half of the buffer is advertised, and 1 byte a millisecond is 1 kB/s.
    let rate = max / 2 / 80 / 1000;
    Fact::new(NAME, format!("up to {}", size(max)), verdict)
        .meaning(format!(
            "the receive window that the kernel grows to: about {rate} MB/s a connection over \
             80 ms; more connections make up for less"
        ))
        .remedy(format!("sysctl -w net.ipv4.tcp_rmem=\"4096 131072 {}\"", 4 * WINDOW_BYTES_GOOD))
}

fn judge_rmem_max(text: Option<&str>) -> Fact {
    const NAME: &str = "net.core.rmem_max";
    let Some(max) = text.and_then(|text| text.parse().ok()) else { return unknown(NAME, RMEM_MAX) };
    // It caps explicit sizes only; by default the kernel tunes the window itself.
    Fact::new(NAME, size(max), Verdict::Ok)
        .meaning("the largest buffer that socket.receive.buffer.bytes can ask for; at -1 the kernel tunes it")
}

fn judge_congestion(text: Option<&str>) -> Fact {
    const NAME: &str = "net.ipv4.tcp_congestion_control";
    let Some(name) = text.filter(|name| !name.is_empty()) else { return unknown(NAME, CONGESTION) };
    let verdict = if name == "reno" { Verdict::Warn } else { Verdict::Ok };
    Fact::new(NAME, name, verdict)
        .meaning(
            "how fast a connection fills a long path is decided by the sender, the source \
             broker's host; this one counts where heliostat serves",
        )
        .remedy("sysctl -w net.ipv4.tcp_congestion_control=cubic, or bbr on paths with loss")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_judged_by_their_upper_end() {
        assert_eq!(judge_tcp_rmem(Some("4096\t131072\t6291456")).verdict, Verdict::Warn);
        assert_eq!(judge_tcp_rmem(Some("4096 131072 67108864")).verdict, Verdict::Ok);
        assert_eq!(judge_tcp_rmem(Some("4096")).value, "unknown");
        assert_eq!(judge_rmem_max(Some("x")).value, "unknown");
        assert_eq!(judge_congestion(Some("")).value, "unknown");
        assert_eq!(judge_congestion(Some("reno")).verdict, Verdict::Warn);
    }
}

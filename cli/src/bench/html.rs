//! A page of its own: no script, nothing fetched, readable in the dark and on a phone.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::Path;

use heliostat_core::engine::spent::TimeSpent;

use super::figures::{Latency, Round};
use super::report::{Report, bound};
use super::svg;
use crate::failure::Failure;
use crate::output::{approximate, size};

/// Rounds that are listed.
const ROUNDS_SHOWN: usize = 200;

/// Colours are told apart by people who see red and green alike, on both grounds.
const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#fcfcfb;--text:#1d2023;--soft:#5c636b;--grid:#dfe2e5;\
--card:#fff;--c0:#1f6fd1;--c1:#c75000;--c2:#00806a;--c3:#a8388f;--c4:#806600;--c5:#5b4fc4}\
@media(prefers-color-scheme:dark){:root{--ground:#15181b;--text:#e8eaec;--soft:#a2a9b1;\
--grid:#32383e;--card:#1d2125;--c0:#6aa9f4;--c1:#ff9a52;--c2:#3cc7a9;--c3:#e68fd2;--c4:#d6b63c;\
--c5:#a79df5}}\
*{box-sizing:border-box}\
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif}\
main{max-width:1040px;margin:0 auto;padding:20px 16px 48px}\
h1{font-size:1.5rem;margin:0 0 2px}h2{font-size:1.05rem;margin:0 0 8px}\
p{margin:6px 0}.soft{color:var(--soft);font-size:.875rem}\
.tiles,.charts{display:grid;gap:14px;margin:18px 0}\
.tiles{grid-template-columns:repeat(auto-fit,minmax(140px,1fr))}\
.charts{grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}\
.card{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px 14px;\
min-width:0}\
.tile b{display:block;font-size:1.6rem;line-height:1.2;font-variant-numeric:tabular-nums}\
svg{display:block;width:100%;height:auto}\
svg text{fill:var(--soft);font:11px system-ui,sans-serif}\
.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}\
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.dash{stroke-dasharray:5 3}\
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}\
.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}\
.source{fill:var(--c0)}.network{fill:var(--c2)}.disk{fill:var(--c1)}.throttle{fill:var(--c3)}\
.key{display:inline-block;width:22px;height:10px;margin-right:6px}\
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:6px;font-size:.875rem}\
.wide{overflow-x:auto}\
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:4px 10px 4px 0;text-align:right;white-space:nowrap;border-bottom:1px solid \
var(--grid)}th:first-child,td:first-child{text-align:left}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:0;font-size:.875rem}\
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}";

/// Refuses a file that cannot be written, before anything is measured; leaves what is in it.
pub(super) fn check(file: &Path) -> Result<(), Failure> {
    OpenOptions::new().append(true).create(true).open(file).map(drop).map_err(|error| {
        let failure = Failure::from_error(file.display().to_string(), error);
        failure.remedy("name a file that can be written with --html")
    })
}

/// Text that means nothing to a browser.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The whole page.
pub(super) fn page(report: &Report<'_>) -> String {
    let facts = report.facts;
    let title = format!("Heliostat benchmark, {}", facts.time);
    let mut body = format!(
        "<h1>Heliostat benchmark</h1><p class=\"soft\">{}</p>{}",
        escape(&report.measured()),
        tiles(report),
    );
    body.push_str("<div class=\"charts\">");
    for card in [throughput(report), latency(report), cpu(report), what_bound(report)] {
        // Writing to a string cannot fail.
        let _ = write!(body, "<section class=\"card\">{card}</section>");
    }
    let _ = write!(
        body,
        "</div><section class=\"card\">{}</section><div class=\"charts\"><section \
         class=\"card\">{}</section><section class=\"card\">{}</section></div>",
        variants(report),
        rounds(report),
        about(report),
    );
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{STYLE}</style>\
         </head><body><main>{body}</main></body></html>\n",
        escape(&title),
    )
}

/// The first variant's figures, large.
fn tiles(report: &Report<'_>) -> String {
    let figures = report.figures;
    let Some(sum) = figures.sums.first() else { return String::new() };
    let append = Latency::of(&sum.append_us);
    let tile = |value: String, what: &str| {
        format!("<div class=\"card tile\"><b>{value}</b><span class=\"soft\">{what}</span></div>")
    };
    format!(
        "<div class=\"tiles\">{}{}{}{}</div>",
        tile(format!("{:.0}", figures.median(0, Round::megabytes_per_second)), "MB/s"),
        tile(
            format!("{:.3}", figures.median(0, Round::cpu_seconds_per_gigabyte)),
            "CPU seconds per GB",
        ),
        tile(format!("{:.1}", approximate(append.p99) / 1e3), "ms append latency, p99"),
        tile(bound(&sum.spent).to_owned(), "is what bound it"),
    )
}

/// Names beside the lines that they have; nothing of a single one.
fn legend(report: &Report<'_>) -> String {
    let names = report.names();
    if names.len() < 2 {
        return String::new();
    }
    let mut out = "<div class=\"legend\">".to_owned();
    for (index, name) in names.iter().enumerate() {
        let _ = write!(out, "<span>{}{}</span>", key(index % svg::COLOURS, ""), escape(name));
    }
    out.push_str("</div>");
    out
}

fn key(colour: usize, more: &str) -> String {
    format!(
        "<svg class=\"key\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"line \
         s{colour}{more}\" d=\"M0 5H22\"/></svg>"
    )
}

fn throughput(report: &Report<'_>) -> String {
    let points = report.figures.series.points();
    let chart = svg::over_time("Throughput over time in MB/s", points, |point| {
        approximate(point.bytes) / 1e6 / point.to.saturating_sub(point.from).as_secs_f64().max(1e-9)
    });
    format!("<h2>Throughput over time, MB/s</h2>{chart}{}", legend(report))
}

fn cpu(report: &Report<'_>) -> String {
    let points = report.figures.series.points();
    // Where hardly anything came, the quotient says nothing.
    let most = points.iter().map(|point| point.bytes).max().unwrap_or(0);
    let telling: Vec<_> = points.iter().filter(|it| it.bytes >= most / 20).copied().collect();
    let chart = svg::over_time("Processor seconds per GB over time", &telling, |point| {
        point.cpu.as_secs_f64() / (approximate(point.bytes.max(1)) / 1e9)
    });
    format!(
        "<h2>Processor time, seconds per GB</h2>{chart}{}<p class=\"soft\">User and system time of \
         the mirror's process, kernel workers included; the clock ticks every 10 ms.</p>",
        legend(report)
    )
}

fn latency(report: &Report<'_>) -> String {
    let mut curves = Vec::new();
    for (index, sum) in report.figures.sums.iter().enumerate() {
        let colour = index % svg::COLOURS;
        curves.push((format!("s{colour}"), &sum.append_us));
        curves.push((format!("s{colour} dash"), &sum.fetch_us));
    }
    let chart = svg::latencies("Latency percentiles in milliseconds", &curves);
    format!(
        "<h2>Latency by percentile, ms</h2>{chart}<div class=\"legend\"><span>{}append: first byte \
         received to written</span><span>{}fetch: Fetch sent to first byte of the \
         answer</span></div>{}",
        key(0, ""),
        key(0, " dash"),
        legend(report),
    )
}

/// The parts of the time, as [`TimeSpent::bound`] names them.
fn parts(spent: &TimeSpent) -> [(&'static str, f64, &'static str); 4] {
    [
        ("source", spent.waiting.as_secs_f64(), "waiting for answers to begin"),
        ("network", spent.receiving.as_secs_f64(), "receiving, or the processor was busy"),
        ("disk", spent.stalled.as_secs_f64(), "waiting for buffers that the disk had not taken"),
        ("throttle", spent.throttled.as_secs_f64(), "not allowed to ask"),
    ]
}

fn what_bound(report: &Report<'_>) -> String {
    let mut out = "<h2>What bound</h2>".to_owned();
    for (sum, name) in report.figures.sums.iter().zip(report.names()) {
        let parts = parts(&sum.spent);
        let all = parts.iter().map(|(_, seconds, _)| seconds).sum::<f64>().max(1e-12);
        let bars = parts.map(|(class, seconds, _)| (class, seconds));
        let _ = write!(
            out,
            "<p>{}</p>{}<div class=\"legend\">",
            escape(&name),
            svg::shares("Share of the connections' time", &bars)
        );
        for (class, seconds, what) in parts {
            let _ = write!(
                out,
                "<span><svg class=\"key\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><rect \
                 class=\"{class}\" width=\"22\" height=\"10\"/></svg>{class} {:.0} %: {what}</span>",
                seconds / all * 100.0,
            );
        }
        out.push_str("</div>");
    }
    out.push_str("<p class=\"soft\">Where the time of all fetching connections went.</p>");
    out
}

fn variants(report: &Report<'_>) -> String {
    let mut out = "<h2>Figures</h2><div class=\"wide\"><table><tr><th>variant</th><th>MB/s</th>\
                   <th>CPU s/GB</th><th>fetch p50</th><th>p99</th><th>p99.9 ms</th><th>append \
                   p50</th><th>p99</th><th>p99.9 ms</th><th>bound by</th><th>reconnects</th>\
                   <th>gaps</th></tr>"
        .to_owned();
    for (index, (sum, name)) in report.figures.sums.iter().zip(report.names()).enumerate() {
        let name = if name.is_empty() { "as configured".to_owned() } else { name };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{:.0}</td><td>{:.3}</td>{}{}<td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&name),
            report.figures.median(index, Round::megabytes_per_second),
            report.figures.median(index, Round::cpu_seconds_per_gigabyte),
            cells(Latency::of(&sum.fetch_us)),
            cells(Latency::of(&sum.append_us)),
            bound(&sum.spent),
            sum.disconnects,
            sum.gaps,
        );
    }
    out.push_str("</table></div>");
    out
}

fn cells(latency: Latency) -> String {
    let cell = |us: u64| format!("<td>{:.1}</td>", approximate(us) / 1e3);
    [latency.p50, latency.p99, latency.p999].map(cell).concat()
}

fn rounds(report: &Report<'_>) -> String {
    let names = report.names();
    let mut out = "<h2>Rounds</h2><div class=\"wide\"><table><tr><th>round</th><th>variant</th>\
                   <th>bytes</th><th>seconds</th><th>MB/s</th><th>CPU s/GB</th><th>ended</th></tr>"
        .to_owned();
    let all = &report.figures.rounds;
    for round in all.iter().skip(all.len().saturating_sub(ROUNDS_SHOWN)) {
        let name = names.get(round.variant).map_or("", String::as_str);
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.0}</td><td>{:.3}</td>\
             <td>{}</td></tr>",
            round.number + 1,
            escape(name),
            size(round.bytes),
            round.took.as_secs_f64(),
            round.megabytes_per_second(),
            round.cpu_seconds_per_gigabyte(),
            round.ended.name(),
        );
    }
    out.push_str("</table></div>");
    out
}

fn about(report: &Report<'_>) -> String {
    let facts = report.facts;
    let shards = report.args.shards().to_string();
    let mut out = "<h2>About this run</h2><dl>".to_owned();
    for (name, value) in [
        ("source", facts.source.as_str()),
        ("copy", &facts.place),
        ("shards", &shards),
        ("host", &facts.host),
        ("kernel", &facts.kernel),
        ("tcp", &facts.congestion),
        ("version", facts.version),
        ("commit", facts.commit),
        ("command", &facts.command),
        ("time", &facts.time),
    ] {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(value));
    }
    out.push_str("</dl>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_typed_is_markup() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_with_a_remedy() {
        let refused = check(Path::new("/nonexistent/page.html")).unwrap_err().to_string();
        assert!(refused.contains("--html"), "{refused}");
    }
}

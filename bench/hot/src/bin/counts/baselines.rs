//! Counts by function, as a text file, and what differs between two of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// How far a count may be from its baseline, in thousandths.
const OFF_MAX: u64 = 30;

/// Instructions of one call, by function and input.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The committed counts, and what compiled the code that they are of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Baselines {
    pub(crate) rustc: String,
    pub(crate) counts: Counts,
}

/// One function, before and now.
#[derive(Debug)]
pub(crate) struct Line {
    name: String,
    baseline: Option<u64>,
    now: Option<u64>,
    pub(crate) is_off: bool,
}

impl Baselines {
    /// A line for each function of either side.
    pub(crate) fn compare(&self, now: &Counts) -> Vec<Line> {
        let mut names: Vec<&String> = self.counts.keys().chain(now.keys()).collect();
        names.sort();
        names.dedup();
        let line = |name: &String| {
            let (baseline, now) = (self.counts.get(name).copied(), now.get(name).copied());
            let is_off = match (baseline, now) {
                (Some(baseline), Some(now)) => now.abs_diff(baseline) * 1000 > baseline * OFF_MAX,
                _ => true,
            };
            Line { name: name.clone(), baseline, now, is_off }
        };
        names.into_iter().map(line).collect()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_off { "OFF " } else { "ok  " };
        write!(f, "{mark}{:<45} ", self.name)?;
        match (self.baseline, self.now) {
            (Some(baseline), Some(now)) => {
                let sign = if now < baseline { '-' } else { '+' };
                let tenths = now.abs_diff(baseline) * 1000 / baseline.max(1);
                let (whole, tenth) = (tenths / 10, tenths % 10);
                write!(
                    f,
                    "baseline {baseline:>9}, now {now:>9} instructions, {sign}{whole}.{tenth} %"
                )
            }
            (None, Some(now)) => write!(f, "has no baseline, now {now} instructions"),
            (Some(baseline), None) => write!(f, "baseline {baseline}, and is not counted any more"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Baselines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions of one call of each hot function: see bench/README.md.")?;
        writeln!(f, "{}", self.rustc)?;
        for (name, count) in &self.counts {
            writeln!(f, "{count:>9}  {name}")?;
        }
        Ok(())
    }
}

impl FromStr for Baselines {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let rustc = lines.next().unwrap_or_default().to_owned();
        let count = |line: &str| {
            let (count, name) = line.trim().split_once("  ")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        let wrong = |line: &str| format!("{line:?} is not a count and a name");
        let counts = lines.map(|line| count(line).ok_or_else(|| wrong(line)));
        Ok(Self { rustc, counts: counts.collect::<Result<_, _>>()? })
    }
}

/// The counts in gungraun's lines of JSON.
pub(crate) fn read_counts(lines: &str) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        let summary: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let text = |field: &str| summary.get(field).and_then(Value::as_str);
        let ir = summary.pointer("/profiles/0/data/total/metrics/Ir/values/new");
        let (Some(function), Some(id), Some(ir)) =
            (text("function_name"), text("id"), ir.and_then(Value::as_u64))
        else {
            return Err(format!("gungraun's summary has other fields: {line}"));
        };
        counts.insert(format!("{function} {id}"), ir);
    }
    if counts.is_empty() {
        return Err("gungraun counted nothing".to_owned());
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> Counts {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn the_file_reads_as_it_was_written() {
        let it =
            Baselines { rustc: "rustc 1".to_owned(), counts: counts(&[("a x", 1), ("b y", 20)]) };
        assert_eq!(it.to_string().parse(), Ok(it));
        assert!("rustc 1\nnonsense".parse::<Baselines>().is_err());
    }

    #[test]
    fn three_percent_either_way_are_on() {
        let it = Baselines { rustc: String::new(), counts: counts(&[("a x", 1_000)]) };
        let is_off = |now| it.compare(&counts(&[("a x", now)]))[0].is_off;
        assert!(!is_off(970) && !is_off(1_030));
        assert!(is_off(969) && is_off(1_031));
    }

    #[test]
    fn a_line_names_function_baseline_and_count() {
        let it =
            Baselines { rustc: String::new(), counts: counts(&[("a x", 1_000), ("gone x", 5)]) };
        let lines = it.compare(&counts(&[("a x", 1_125), ("new x", 7)]));
        let lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        assert!(lines[0].starts_with("OFF a x") && lines[0].ends_with("+12.5 %"), "{lines:?}");
        assert!(lines[0].contains("1000") && lines[0].contains("1125"), "{lines:?}");
        assert!(
            lines[1].starts_with("OFF gone x") && lines[2].starts_with("OFF new x"),
            "{lines:?}"
        );
    }

    #[test]
    fn gungrauns_summary_is_read() {
        let line = r#"{"function_name":"f","id":"x","profiles":[{"data":{"total":{"metrics":{"Ir":{"values":{"new":9}}}}}}]}"#;
        assert_eq!(read_counts(&format!("noise\n{line}\n")), Ok(counts(&[("f x", 9)])));
        assert!(read_counts("").is_err());
    }
}

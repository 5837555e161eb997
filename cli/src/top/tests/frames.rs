//! Frames, as an operator sees them.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::super::draw::{Now, draw};
use super::super::text;
use super::*;

fn terminal(model: &Model, now: Now, (width, height): (u16, u16)) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(frame.buffer_mut(), area, model, now);
        })
        .unwrap();
    terminal.backend().clone()
}

/// The frame at both sizes.
fn both(model: &Model, now: Now) -> String {
    [(80, 24), (200, 50)].map(|size| terminal(model, now, size).to_string()).join("\n")
}

#[test]
fn all_mirrors() {
    assert_snapshot!(both(&full(), at(1)));
}

#[test]
fn the_topics_of_a_mirror() {
    assert_snapshot!(both(&in_topics(), at(1)));
}

#[test]
fn the_partitions_of_a_topic() {
    assert_snapshot!(both(&in_partitions(), at(1)));
}

#[test]
fn nothing_yet_and_nothing_at_all() {
    let mut model = empty();
    let before = both(&model, at(0));
    look(&mut model, |_| DescribeClusterMirrorsResponse {
        taken_at_ms: 1,
        ..DescribeClusterMirrorsResponse::default()
    });
    assert_snapshot!(format!("{before}\n{}", both(&model, at(1))));
}

#[test]
fn filtered() {
    let mut model = full();
    type_in(&mut model, "/SITE-2");
    let typing = both(&model, at(1));
    model.press(Key::Enter);
    assert_snapshot!(format!("{typing}\n{}", both(&model, at(1))));
}

#[test]
fn only_what_fails() {
    let mut model = full();
    type_in(&mut model, "f");
    assert_snapshot!(both(&model, at(1)));
}

#[test]
fn too_small() {
    let model = full();
    let sizes = [(49, 24), (80, 9), (20, 6), (1, 1), (50, 10)];
    assert_snapshot!(sizes.map(|size| terminal(&model, at(1), size).to_string()).join("\n"));
}

#[test]
fn without_a_connection() {
    let mut model = full();
    let error = "DescribeClusterMirrors was not answered: 127.0.0.1:9192: connection refused";
    model.miss(error, Duration::from_secs(12), Duration::from_secs(16));
    let mut never = empty();
    never.miss(error, Duration::from_secs(1), Duration::from_secs(2));
    assert_snapshot!(format!("{}\n{}", both(&model, at(14)), both(&never, at(1))));
}

#[test]
fn help() {
    let mut model = full();
    type_in(&mut model, "?");
    assert_snapshot!(both(&model, at(1)));
}

#[test]
fn one_frame_as_text() {
    assert_snapshot!(text(&in_partitions(), at(1), 120));
}

#[test]
fn every_row_is_in_the_text() {
    let text = text(&full(), at(1), 200);
    for index in (1..=30).filter(|index| *index != 7) {
        assert!(text.contains(&format!("site-{index:02} ")), "{index}: {text}");
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).contains(&words(REASON)), "{text}");
    assert!(!text.contains("q quit"), "{text}");
}

/// What is red on a screen, by its lines.
fn in_style(model: &Model, now: Now, wanted: impl Fn(Color, Modifier) -> bool) -> Vec<u16> {
    let backend = terminal(model, now, (80, 24));
    let buffer = backend.buffer();
    (0..24)
        .filter(|y| {
            let cell = buffer.cell((3, *y)).unwrap();
            wanted(cell.fg, cell.modifier)
        })
        .collect()
}

#[test]
fn what_fails_is_red_and_what_is_old_is_dim() {
    let mut model = full();
    let red = |color, _| color == Color::Red;
    let dim = |_, modifier: Modifier| modifier.contains(Modifier::DIM);
    let (failed, last_row) = (4, 14);
    assert!(in_style(&model, at(1), red).contains(&failed));
    assert!(!in_style(&model, at(1), dim).contains(&last_row));
    assert!(in_style(&model, at(20), dim).contains(&last_row), "nothing heard for long");
    model.miss("gone", Duration::from_secs(1), Duration::from_secs(2));
    assert!(in_style(&model, at(1), dim).contains(&last_row));
    assert!(in_style(&model, at(1), red).contains(&2), "the error is");
    model.take(&model.query(), &mirrors(102), Duration::from_secs(2));
    assert!(!in_style(&model, at(2), dim).contains(&last_row));
}

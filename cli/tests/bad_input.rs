//! The built program and what an operator can get wrong.

use std::path::Path;

use heliostat_tests::scenarios::Result;
use heliostat_tests::scenarios::bad_input::bad_input;

#[test]
fn what_an_operator_gets_wrong_is_told_on_one_line_and_loses_nothing() -> Result<()> {
    println!("{}", bad_input(Path::new(env!("CARGO_BIN_EXE_heliostat")))?);
    Ok(())
}

//! Programs linked to the libraries of ns-3's PyPI package (g++ is needed, its Python bindings are not):
//! `python3 -m venv target/ns3 && target/ns3/bin/pip install --no-deps ns3`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `benches/ns3/NAME.cc` against the ns-3 of a Python installation; why not, if it cannot be done.
pub fn build(name: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let find = "import importlib.util as u; print(*u.find_spec('ns3').submodule_search_locations)";
    let package = [root.join("target/ns3/bin/python3"), PathBuf::from("python3")].iter().find_map(|python| {
        let output = Command::new(python).args(["-c", find]).output().ok().filter(|output| output.status.success())?;
        Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    });
    let package = package.ok_or(
        "no python3 here has it; python3 -m venv target/ns3 && target/ns3/bin/pip install --no-deps ns3 gets it",
    )?;
    let libraries = package.join("lib64");
    let names = std::fs::read_dir(&libraries).map_err(|error| format!("{}: {error}", libraries.display()))?;
    let names = names.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let stem = names.filter_map(|name| name.strip_prefix("lib")?.strip_suffix("core.so").map(str::to_owned)).next();
    let stem = stem.ok_or_else(|| format!("{} has no core library", libraries.display()))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/ns3/{name}.cc"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ns3-{name}"));
    let mut command = Command::new("g++");
    command.args(["-O2", "-std=c++20"]).arg(source).args(["-Wl,--allow-shlib-undefined", "-o"]).arg(&program);
    command.arg("-I").arg(package.join("include")).arg("-L").arg(&libraries);
    command.arg(format!("-Wl,-rpath,{}", libraries.display()));
    command.args(
        ["core", "network", "internet", "applications", "point-to-point", "traffic-control"]
            .map(|part| format!("-l{stem}{part}")),
    );
    match command.output() {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => Err(format!("g++ failed: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("g++: {error}")),
    }
}

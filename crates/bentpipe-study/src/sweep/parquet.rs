//! `results.parquet`: one row a measurement, with the units in the file's own metadata.
//!
//! Written through the column writers of the `parquet` crate, without Arrow: a table of a dozen flat columns needs no more.

use super::SweepError;
use super::engine::Outcome;
use super::journal::{SweepRequest, replace};
use super::plan::Plan;
use super::results::NameId;
use super::subject::Subject;
use ::parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Rows of one row group.
const GROUP_ROWS: usize = 128 * 1024;

/// A column: its name, its unit if it has one for all rows, and its values.
struct Column {
    name: String,
    unit: Option<&'static str>,
    optional: bool,
    values: Values,
}

enum Values {
    Count(Vec<i32>),
    Copy(Vec<Option<i32>>),
    Seed(Vec<i64>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<ByteArray>>),
}

/// Writes the results to `path`: whole, or not at all.
pub fn write(path: &Path, plan: &Plan, outcome: &Outcome) -> Result<(), SweepError> {
    let mut table = Table::new(plan);
    let schema = table.schema().map_err(|error| failed(path, error))?;
    let properties = Arc::new(
        WriterProperties::builder()
            .set_created_by(format!("bentpipe {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(
                metadata(plan, &table)
                    .map_err(|error| SweepError::folder(format!("cannot write {}", path.display()), error.into()))?,
            ))
            .build(),
    );
    replace(path, |file| {
        let mut writer = SerializedFileWriter::new(io::BufWriter::new(file), schema, properties).map_err(to_io)?;
        let mut texts = Texts::default();
        let mut units = BTreeMap::new();
        for (point, run, result) in outcome.results.all() {
            if run >= outcome.targets[point as usize] {
                continue;
            }
            if let Some(error) = &result.error {
                table.push(
                    plan,
                    &mut texts,
                    point,
                    result.seed,
                    &Figure { status: "error", error, ..Figure::default() },
                );
            }
            for row in &result.rows {
                let name = |id: NameId| outcome.results.name(id);
                let figure = Figure {
                    case: name(row.case),
                    repeat: row.repeat,
                    measurement: row.measurement.map_or("", name),
                    unit: units.entry(row.unit).or_insert_with(|| outcome.results.unit(row.unit)).symbol(),
                    value: row.value,
                    status: row.status.name(),
                    error: row.error.map_or("", name),
                    ..match row.subject {
                        Subject::Workload { workload, copy } => {
                            Figure { workload: name(workload), copy, ..Figure::default() }
                        }
                        Subject::Direction { link, from } => {
                            Figure { link: name(link), from: name(from), ..Figure::default() }
                        }
                        Subject::Host { host } => Figure { host: name(host), ..Figure::default() },
                    }
                };
                table.push(plan, &mut texts, point, result.seed, &figure);
            }
            if table.rows() >= GROUP_ROWS {
                table.flush(&mut writer).map_err(to_io)?;
            }
        }
        table.flush(&mut writer).map_err(to_io)?;
        writer.close().map_err(to_io)?;
        Ok(())
    })
}

/// One row but for the point. An empty text is a null.
#[derive(Default)]
struct Figure<'a> {
    case: &'a str,
    workload: &'a str,
    copy: Option<u32>,
    link: &'a str,
    from: &'a str,
    host: &'a str,
    repeat: u32,
    measurement: &'a str,
    unit: &'a str,
    value: Option<f64>,
    status: &'a str,
    error: &'a str,
}

/// Texts that occur again and again, made once.
#[derive(Default)]
struct Texts(BTreeMap<String, ByteArray>);

impl Texts {
    fn get(&mut self, text: &str) -> Option<ByteArray> {
        if text.is_empty() {
            return None;
        }
        if let Some(known) = self.0.get(text) {
            return Some(known.clone());
        }
        let bytes = ByteArray::from(text.as_bytes().to_vec());
        self.0.insert(text.to_owned(), bytes.clone());
        Some(bytes)
    }
}

/// The rows not yet written, by column.
struct Table {
    columns: Vec<Column>,
    /// For each `--vary`, the numbers of its values; none where they are no numbers.
    numbers: Vec<Option<Vec<f64>>>,
}

impl Table {
    fn new(plan: &Plan) -> Table {
        let text = |name: &str, optional| Column {
            name: name.to_owned(),
            unit: None,
            optional,
            values: Values::Text(Vec::new()),
        };
        let count = |name: &str| Column {
            name: name.to_owned(),
            unit: None,
            optional: false,
            values: Values::Count(Vec::new()),
        };
        let mut columns = vec![count("point")];
        let mut numbers = Vec::new();
        for vary in &plan.varies {
            let quantities = vary.quantities();
            match &quantities {
                Some(quantities) => {
                    let unit = quantities.first().map(|quantity| quantity.unit);
                    let values = Values::Number(Vec::new());
                    columns.push(Column { name: vary.key.clone(), unit, optional: false, values });
                    columns.push(text(&format!("{}.text", vary.key), false));
                }
                None => columns.push(text(&vary.key, false)),
            }
            numbers.push(quantities.map(|all| all.iter().map(|quantity| quantity.value).collect()));
        }
        columns.extend([text("case", true), text("workload", true)]);
        columns.push(Column { name: "copy".into(), unit: None, optional: true, values: Values::Copy(Vec::new()) });
        columns.push(count("repeat"));
        columns.push(Column { name: "seed".into(), unit: None, optional: false, values: Values::Seed(Vec::new()) });
        columns.extend([text("measurement", true), text("unit", true)]);
        columns.push(Column { name: "value".into(), unit: None, optional: true, values: Values::Number(Vec::new()) });
        columns.extend([text("status", false), text("error", true)]);
        columns.extend(["link", "from", "host"].map(|name| text(name, true)));
        Table { columns, numbers }
    }

    fn schema(&self) -> Result<Arc<Type>, ParquetError> {
        let fields: Result<Vec<_>, _> = self.columns.iter().map(|column| column.field().map(Arc::new)).collect();
        Ok(Arc::new(Type::group_type_builder("measurements").with_fields(fields?).build()?))
    }

    fn rows(&self) -> usize {
        match self.columns.first().map(|column| &column.values) {
            Some(Values::Count(counts)) => counts.len(),
            _ => 0,
        }
    }

    /// Adds a row: the values in the order of the columns of [`Table::new`].
    fn push(&mut self, plan: &Plan, texts: &mut Texts, point: u32, seed: u64, figure: &Figure<'_>) {
        let mut columns = self.columns.iter_mut().map(|column| &mut column.values);
        let mut put = |cell: Cell<'_>| match (columns.next(), cell) {
            (Some(Values::Count(all)), Cell::Count(count)) => all.push(i32::try_from(count).unwrap_or(i32::MAX)),
            (Some(Values::Copy(all)), Cell::Copy(copy)) => all.push(copy.and_then(|copy| i32::try_from(copy).ok())),
            // The bits of an unsigned number, which the column's type says.
            (Some(Values::Seed(all)), Cell::Seed(seed)) => all.push(seed.cast_signed()),
            (Some(Values::Number(all)), Cell::Number(number)) => all.push(number),
            (Some(Values::Text(all)), Cell::Text(text)) => all.push(texts.get(text)),
            _ => debug_assert!(false, "a row fits its columns"),
        };
        put(Cell::Count(point));
        let point = &plan.points[point as usize];
        for (((_, label), choice), numbers) in plan.labels(point).zip(&point.choices).zip(&self.numbers) {
            if let Some(numbers) = numbers {
                put(Cell::Number(Some(numbers[*choice])));
            }
            put(Cell::Text(label));
        }
        put(Cell::Text(figure.case));
        put(Cell::Text(figure.workload));
        put(Cell::Copy(figure.copy));
        put(Cell::Count(figure.repeat));
        put(Cell::Seed(seed));
        put(Cell::Text(figure.measurement));
        put(Cell::Text(figure.unit));
        put(Cell::Number(figure.value));
        put(Cell::Text(figure.status));
        put(Cell::Text(figure.error));
        for text in [figure.link, figure.from, figure.host] {
            put(Cell::Text(text));
        }
    }

    fn flush<W: io::Write + Send>(&mut self, writer: &mut SerializedFileWriter<W>) -> Result<(), ParquetError> {
        if self.rows() == 0 {
            return Ok(());
        }
        let mut group = writer.next_row_group()?;
        for column in &mut self.columns {
            column.flush(&mut group)?;
        }
        group.close()?;
        Ok(())
    }
}

enum Cell<'a> {
    Count(u32),
    Copy(Option<u32>),
    Seed(u64),
    Number(Option<f64>),
    Text(&'a str),
}

impl Column {
    fn field(&self) -> Result<Type, ParquetError> {
        let physical = match self.values {
            Values::Count(_) | Values::Copy(_) => Physical::INT32,
            Values::Seed(_) => Physical::INT64,
            Values::Number(_) => Physical::DOUBLE,
            Values::Text(_) => Physical::BYTE_ARRAY,
        };
        let logical = match self.values {
            Values::Text(_) => Some(LogicalType::String),
            Values::Seed(_) => Some(LogicalType::integer(64, false)),
            Values::Count(_) | Values::Copy(_) | Values::Number(_) => None,
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_repetition(if self.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .with_logical_type(logical)
            .with_converted_type(ConvertedType::NONE)
            .build()
    }

    fn flush<W: io::Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<(), ParquetError> {
        match &mut self.values {
            Values::Count(all) => put_column::<Int32Type, W>(group, &std::mem::take(all), None),
            Values::Copy(all) => put_optional::<Int32Type, W>(group, std::mem::take(all), self.optional),
            Values::Seed(all) => put_column::<Int64Type, W>(group, &std::mem::take(all), None),
            Values::Number(all) => put_optional::<DoubleType, W>(group, std::mem::take(all), self.optional),
            Values::Text(all) => put_optional::<ByteArrayType, W>(group, std::mem::take(all), self.optional),
        }
    }
}

fn put_optional<T: DataType, W: io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    all: Vec<Option<T::T>>,
    optional: bool,
) -> Result<(), ParquetError> {
    let levels: Option<Vec<i16>> = optional.then(|| all.iter().map(|value| i16::from(value.is_some())).collect());
    let present: Vec<T::T> = if optional {
        all.into_iter().flatten().collect()
    } else {
        all.into_iter().map(Option::unwrap_or_default).collect()
    };
    put_column::<T, W>(group, &present, levels.as_deref())
}

fn put_column<T: DataType, W: io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than the table".to_owned());
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}

/// Units, and what was asked.
fn metadata(plan: &Plan, table: &Table) -> Result<Vec<KeyValue>, serde_json::Error> {
    let mut units: BTreeMap<&str, &str> = BTreeMap::from([("value", "as the column unit says")]);
    units.extend(table.columns.iter().filter_map(|column| Some((column.name.as_str(), column.unit?))));
    Ok(vec![
        KeyValue::new("bentpipe.units".to_owned(), serde_json::to_string(&units)?),
        KeyValue::new("bentpipe.sweep".to_owned(), serde_json::to_string(&SweepRequest::of(plan))?),
    ])
}

fn to_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other.to_string()),
    }
}

fn failed(path: &Path, error: ParquetError) -> SweepError {
    SweepError::folder(format!("cannot write {}", path.display()), to_io(error))
}

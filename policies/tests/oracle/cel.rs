//! The `cel` crate as the oracle.

use std::sync::Arc;

use cel::extractors::Arguments;
use cel::{Context, Env, ExecutionError, Program, Value};

use super::TABLE;
use super::reference::{World, call};
use super::tree::{CONDITIONS, SIGNALS};

/// What cel's parser needs for the deepest expressions in a debug build (16 MiB were measured at 90 brackets).
const STACK: usize = 32 * 1024 * 1024;

/// Runs `work` where cel's parser has the stack that it needs.
pub(crate) fn on_a_large_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    if let Err(panic) = thread.expect("a thread can be started").join() {
        std::panic::resume_unwind(panic);
    }
}

/// The text with every whole number as a double: in CEL `1` is no double, and the two are never added.
pub(crate) fn widened(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphabetic() || first == '_' {
            span(rest, |byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
            })
        } else if let Some((length, whole)) = literal(rest) {
            if whole {
                out.push_str(&rest[..length]);
                out.push_str(".0");
                rest = &rest[length..];
                continue;
            }
            length
        } else {
            first.len_utf8()
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

fn span(text: &str, of: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| of(*byte)).count()
}

/// The length of the number that `text` begins with, and whether it has neither point nor exponent.
fn literal(text: &str) -> Option<(usize, bool)> {
    let digits = |from: usize| span(&text[from..], |byte| byte.is_ascii_digit());
    let whole = digits(0);
    let mut end = whole;
    if text[end..].starts_with('.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if end == 0 {
        return None;
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some((end, end == whole))
}

/// Compiles a text of our language with cel.
pub(crate) fn compile(text: &str) -> Result<Program, String> {
    Program::compile(&widened(text)).map_err(|errors| errors.to_string())
}

/// cel with our functions and the names that are known; the others are undeclared.
pub(crate) fn context(env: &Arc<Env>, world: &World) -> Context<'static, 'static> {
    let mut context = Context::with_env(Arc::clone(env));
    for name in ["min", "max"] {
        let function = move |Arguments(arguments): Arguments| many(name, &arguments);
        context.add_function(name, function).expect("a free name");
    }
    for name in ["abs", "floor", "ceil"] {
        let function = move |value: f64| call(name, &[value]);
        context.add_function(name, function).expect("a free name");
    }
    let signals = SIGNALS.iter().map(|signal| signal.0);
    for name in signals.chain(TABLE.iter().map(|row| row.name)) {
        if let Some(value) = world.number(name) {
            context.add_variable_from_value(name, value);
        }
    }
    for name in CONDITIONS {
        if let Some(value) = world.condition(name) {
            context.add_variable_from_value(*name, value);
        }
    }
    context
}

fn many(name: &str, arguments: &[Value]) -> Result<Value, ExecutionError> {
    let doubles = arguments.iter().map(|argument| match argument {
        Value::Float(value) => Ok(*value),
        other => Err(ExecutionError::function_error(name, format!("{other:?}"))),
    });
    let doubles = doubles.collect::<Result<Vec<f64>, _>>()?;
    Ok(Value::Float(call(name, &doubles)))
}

/// What cel says; an error in words.
pub(crate) fn evaluate(program: &Program, context: &Context<'_, '_>) -> Result<bool, String> {
    match program.execute(context) {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(other) => Err(format!("{other:?} is no condition")),
        Err(error) => Err(error.to_string()),
    }
}

/// The number that cel says; an error in words.
pub(crate) fn number(program: &Program, context: &Context<'_, '_>) -> Result<f64, String> {
    match program.execute(context) {
        Ok(Value::Float(value)) => Ok(value),
        Ok(other) => Err(format!("{other:?} is no number")),
        Err(error) => Err(error.to_string()),
    }
}

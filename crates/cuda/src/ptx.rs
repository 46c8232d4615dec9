//! What PTX says about the kernels in it.

/// The sizes in bytes of a kernel's parameters, or `None` if the text has no entry of that name.
///
/// The driver reads as many parameters as the kernel declares, so a launch with fewer would read past the arguments; and
/// the driver's own answer (`cuFuncGetParamInfo`) only exists from CUDA 12.4 on. (PTX ISA, "Kernel Function Parameters".)
pub(crate) fn entry_parameters(ptx: &str, kernel: &str) -> Option<Vec<u32>> {
    let text = without_comments(ptx);
    let mut rest = text.as_str();
    loop {
        rest = rest.split_once(".entry")?.1;
        let declaration = rest.trim_start();
        let name_ends = declaration.find(|c: char| c == '(' || c == '{' || c == ';' || c.is_whitespace())?;
        let (name, behind) = declaration.split_at(name_ends);
        if name != kernel {
            continue;
        }
        let Some(list) = behind.trim_start().strip_prefix('(') else { return Some(Vec::new()) };
        let list = list.split_once(')')?.0;
        return list
            .split(',')
            .filter(|parameter| !parameter.trim().is_empty())
            .map(parameter_bytes)
            .collect();
    }
}

/// The size of one declaration such as `.param .u64 x` or `.param .align 8 .b8 x[64]`.
fn parameter_bytes(declaration: &str) -> Option<u32> {
    let element = declaration.split_whitespace().find_map(type_bytes)?;
    match declaration.split_once('[') {
        None => Some(element),
        Some((_, size)) => {
            let count: u32 = size.split_once(']')?.0.trim().parse().ok()?;
            element.checked_mul(count)
        }
    }
}

fn type_bytes(word: &str) -> Option<u32> {
    match word {
        ".b8" | ".u8" | ".s8" => Some(1),
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Some(2),
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Some(4),
        ".b64" | ".u64" | ".s64" | ".f64" | ".texref" | ".samplerref" | ".surfref" => Some(8),
        ".b128" => Some(16),
        _ => None,
    }
}

fn without_comments(ptx: &str) -> String {
    let mut text = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(start) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        let (before, comment) = rest.split_at(start);
        text.push_str(before);
        text.push(' ');
        let end = if comment.starts_with("//") {
            comment.find('\n')
        } else {
            comment.find("*/").map(|end| end + 2)
        };
        rest = end.and_then(|end| comment.get(end..)).unwrap_or("");
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
        .version 7.8
        .target sm_52 // .entry commented( .param .u64 p )
        .visible .entry scale(
            .param .u64 scale_param_0, /* .param .u64 no */
            .param .f32 scale_param_1,
            .param .align 8 .b8 scale_param_2[64],
            .param .u64 .ptr .global .align 16 scale_param_3
        ) .maxntid 256, 1, 1
        { ret; }
        .visible .entry scale_more(.param .u8 a){ ret; }
        .entry nothing() { ret; }
        .entry bare { ret; }";

    #[test]
    fn parameters_are_found_with_their_sizes() {
        assert_eq!(entry_parameters(PTX, "scale"), Some(vec![8, 4, 64, 8]));
        assert_eq!(entry_parameters(PTX, "scale_more"), Some(vec![1]));
    }

    #[test]
    fn a_kernel_without_parameters_has_none() {
        assert_eq!(entry_parameters(PTX, "nothing"), Some(vec![]));
        assert_eq!(entry_parameters(PTX, "bare"), Some(vec![]));
    }

    #[test]
    fn a_kernel_that_is_not_there_is_not_found_in_a_comment_or_a_longer_name() {
        for missing in ["commented", "scal", "scale_", "", "ret"] {
            assert_eq!(entry_parameters(PTX, missing), None, "{missing}");
        }
    }

    #[test]
    fn text_that_ends_too_early_gives_no_kernel_instead_of_a_panic() {
        for end in 0..PTX.len() {
            let _ = entry_parameters(&PTX[..end], "scale");
        }
        assert_eq!(entry_parameters(".entry scale(.param .u64", "scale"), None);
        assert_eq!(entry_parameters(".entry scale(.param .what x)", "scale"), None);
    }
}

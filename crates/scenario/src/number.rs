//! Numbers of a program: sizes, bytes and turns.

use crate::Name;

/// A number of elements, bytes or turns.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// A number as it is written.
    Literal(u64),
    /// What a name stands for.
    Name(Name),
    /// Two numbers together. Differences stop at zero; a quotient is rounded down.
    Of(Box<Number>, Arithmetic, Box<Number>),
}

/// How two numbers make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

impl Number {
    /// What it is, with what each name stands for. A name that stands for none counts as zero, which a checked program has not.
    ///
    /// # Errors
    /// What is divided by zero.
    pub(crate) fn evaluate(&self, named: &impl Fn(&str) -> Option<u64>) -> Result<u64, String> {
        match self {
            Self::Literal(number) => Ok(*number),
            Self::Name(name) => Ok(named(&name.text).unwrap_or_default()),
            Self::Of(left, how, right) => {
                let (left, right) = (left.evaluate(named)?, right.evaluate(named)?);
                match how {
                    Arithmetic::Add => Ok(left.saturating_add(right)),
                    Arithmetic::Subtract => Ok(left.saturating_sub(right)),
                    Arithmetic::Multiply => Ok(left.saturating_mul(right)),
                    Arithmetic::Divide => {
                        left.checked_div(right).ok_or_else(|| format!("`{self}` divides by zero"))
                    }
                }
            }
        }
    }

    /// What it is whatever names stand for, because there is none in it.
    pub(crate) fn known(&self) -> Option<u64> {
        if self.has_names() { None } else { self.evaluate(&|_| None).ok() }
    }

    fn has_names(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Name(_) => true,
            Self::Of(left, _, right) => left.has_names() || right.has_names(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(left: u64, how: Arithmetic, right: u64) -> Number {
        Number::Of(Box::new(Number::Literal(left)), how, Box::new(Number::Literal(right)))
    }

    #[test]
    fn differences_stop_at_zero_sums_at_the_largest_number_and_a_quotient_is_rounded_down() {
        assert_eq!(of(2, Arithmetic::Subtract, 3).known(), Some(0));
        assert_eq!(of(u64::MAX, Arithmetic::Add, 3).known(), Some(u64::MAX));
        assert_eq!(of(7, Arithmetic::Divide, 2).known(), Some(3));
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        let error = of(7, Arithmetic::Divide, 0).evaluate(&|_| None).unwrap_err();
        assert_eq!(error, "`(7 / 0)` divides by zero");
        assert_eq!(of(7, Arithmetic::Divide, 0).known(), None);
    }

    #[test]
    fn a_number_with_a_name_in_it_is_not_known_before_the_program_runs() {
        let n = Number::Name(Name::new("n"));
        let sum = Number::Of(Box::new(Number::Literal(1)), Arithmetic::Add, Box::new(n));
        assert_eq!(sum.known(), None);
        assert_eq!(sum.evaluate(&|name| (name == "n").then_some(4)), Ok(5));
    }
}

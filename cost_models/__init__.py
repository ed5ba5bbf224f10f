"""How long an operator or a transfer takes: features, predictors and profiles."""

"""The studies of the paper and those beyond it: users of graphquilt that are not shipped with it."""

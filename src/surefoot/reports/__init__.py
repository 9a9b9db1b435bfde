"""Reports: records as a person reads them. They read records and compute nothing of their own."""

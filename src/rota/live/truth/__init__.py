"""Truth of forecasts: kept, scored when the job starts or ends, and calibrated by what was seen."""

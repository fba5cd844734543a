"""Linear and integer programs, matchings and assignments that several families use."""
